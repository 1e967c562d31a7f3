import { RuntimeError } from "@iop/agent-runtime";

/** Queued bytes at which the provider is not read any further. */
const HIGH_WATER_BYTES = 64 * 1024;
/** Queued bytes below which it is read again. */
const LOW_WATER_BYTES = 32 * 1024;
/** A chunk below this is copied when it is queued. */
const SMALL_BYTES = 4 * 1024;
/** What small chunks are copied into, piece by piece; also the longest chunk that is made of them. */
const SLAB_BYTES = 16 * 1024;

const DONE: IteratorReturnResult<undefined> = { done: true, value: undefined };
const NO_SLAB = new Uint8Array(0);

export interface ResponseBodyOptions {
  /** Called when the queue has become short again after `push` had answered false. */
  readonly resume: () => void;
  /** Called when the reader returns early. Resolves when the connection is closed. */
  readonly abandon: () => Promise<void>;
}

/**
 * A response's body between the HTTP client that pushes and the one reader that pulls.
 *
 * A chunk that the reader waits for goes straight to it, as the client made it: a view onto the buffer of
 * one read from the socket, up to 64 KiB. What nobody waits for is queued. There a small chunk is copied
 * behind the small one before it: a few bytes that lie for a while would hold the whole buffer, and what
 * came in one burst leaves as one chunk instead of hundreds. Longer chunks are queued as they are.
 */
export class ResponseBody implements AsyncIterableIterator<Uint8Array> {
  readonly #resume: () => void;
  readonly #abandon: () => Promise<void>;
  readonly #queue: Uint8Array[] = [];
  /** Small chunks after the queue's: the bytes from `#from` to `#to`. */
  #slab: Uint8Array = NO_SLAB;
  #from = 0;
  #to = 0;
  #queuedBytes = 0;
  #paused = false;
  #over = false;
  #failure: RuntimeError | undefined;
  #waiting: PromiseWithResolvers<IteratorResult<Uint8Array, undefined>> | undefined;

  constructor(options: ResponseBodyOptions) {
    this.#resume = options.resume;
    this.#abandon = options.abandon;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  /** Takes the next chunk. False: no more until `resume` is called. */
  push(chunk: Uint8Array): boolean {
    if (this.#waiting !== undefined) {
      const { resolve } = this.#waiting;
      this.#waiting = undefined;
      resolve({ done: false, value: chunk });
      return true;
    }
    if (chunk.byteLength < SMALL_BYTES) this.#append(chunk);
    else {
      this.#seal();
      this.#queue.push(chunk);
    }
    this.#queuedBytes += chunk.byteLength;
    this.#paused ||= this.#queuedBytes >= HIGH_WATER_BYTES;
    return !this.#paused;
  }

  /** No chunk follows. What is queued is still read, then `failure` is thrown, if there is one. */
  end(failure?: RuntimeError): void {
    if (this.#over) return;
    this.#over = true;
    const waiting = this.#waiting;
    this.#waiting = undefined;
    if (waiting === undefined) this.#failure = failure;
    else if (failure === undefined) waiting.resolve(DONE);
    else waiting.reject(failure);
  }

  /** Forgets what is queued. */
  drop(): void {
    this.#queue.length = 0;
    this.#slab = NO_SLAB;
    this.#from = 0;
    this.#to = 0;
    this.#queuedBytes = 0;
  }

  next(): Promise<IteratorResult<Uint8Array, undefined>> {
    const chunk = this.#take();
    if (chunk !== undefined) return Promise.resolve({ done: false, value: chunk });
    if (this.#over) {
      const failure = this.#failure;
      this.#failure = undefined;
      return failure === undefined ? Promise.resolve(DONE) : Promise.reject(failure);
    }
    if (this.#waiting !== undefined)
      return Promise.reject(new RuntimeError("internal", "a body has one reader, which pulls one at a time"));
    this.#waiting = Promise.withResolvers();
    return this.#waiting.promise;
  }

  async return(): Promise<IteratorReturnResult<undefined>> {
    this.drop();
    if (!this.#over) await this.#abandon();
    this.#failure = undefined;
    return DONE;
  }

  #append(chunk: Uint8Array): void {
    if (this.#slab.byteLength - this.#to < chunk.byteLength) {
      this.#seal();
      this.#slab = new Uint8Array(SLAB_BYTES);
      this.#from = 0;
      this.#to = 0;
    }
    this.#slab.set(chunk, this.#to);
    this.#to += chunk.byteLength;
  }

  /** Makes one queued chunk of the small ones. */
  #seal(): void {
    if (this.#to === this.#from) return;
    this.#queue.push(this.#slab.subarray(this.#from, this.#to));
    this.#from = this.#to;
  }

  #take(): Uint8Array | undefined {
    if (this.#queue.length === 0) this.#seal();
    const chunk = this.#queue.shift();
    if (chunk === undefined) return undefined;
    this.#queuedBytes -= chunk.byteLength;
    if (this.#paused && this.#queuedBytes < LOW_WATER_BYTES) {
      this.#paused = false;
      this.#resume();
    }
    return chunk;
  }
}
