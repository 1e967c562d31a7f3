import type { Clock } from "./clock.ts";
import { realClock } from "./clock.ts";
import type { Connection, ConnectionHandlers, Listener, Transport } from "./transport.ts";
import { WireError } from "./wire-error.ts";

/** `drained` is called when the queue empties after it had reached this many bytes. */
const FULL_BYTES = 64 * 1024;

export interface MemoryTransportOptions {
  /** Time; deliveries are deferred on it. Default: real. */
  readonly clock?: Clock;
  /** Cuts what is delivered, for tests: answers the length of the next chunk, from 1 to `available` bytes. */
  readonly chunkBytes?: (available: number) => number;
}

/** Both ends in one process. What one `listen`s for, the other `dial`s. */
export interface MemoryTransport extends Transport {
  /** Connections that are open, in the order in which they were dialled; for tests that cut or stall them. */
  readonly links: readonly MemoryLink[];
}

/** One connection, as a test that plays the network sees it. */
export interface MemoryLink {
  /** Nothing is delivered in either direction, nobody is told, until `resume`. */
  stall(): void;
  resume(): void;
  /** Both ends close, what was under way is lost. */
  cut(): void;
}

/** An in-process transport for tests and embedding, with the timing of a real one: nothing is delivered in the turn in which it was written. */
export function memoryTransport(options: MemoryTransportOptions = {}): MemoryTransport {
  const clock = options.clock ?? realClock;
  const chunkBytes = options.chunkBytes ?? ((available: number) => available);
  let accept: ((connection: Connection) => void) | undefined;
  let dialled = 0;
  const links: MemoryLink[] = [];

  return {
    links,
    dial({ signal }) {
      if (signal.aborted) return Promise.reject(signal.reason);
      if (accept === undefined) return Promise.reject(new WireError("dial_failed", "memory: nobody listens"));
      const id = ++dialled;
      const near = new MemoryConnection(`memory:edge-${id}`, clock, chunkBytes);
      const far = new MemoryConnection(`memory:node-${id}`, clock, chunkBytes);
      near.peer = far;
      far.peer = near;
      const link: MemoryLink = {
        stall: () => {
          near.stalled = true;
          far.stalled = true;
        },
        resume: () => {
          near.resume();
          far.resume();
        },
        cut: () => {
          near.destroy(new WireError("connection_lost", "cut"));
          far.destroy(new WireError("connection_lost", "cut"));
        },
      };
      links.push(link);
      near.onGone = () => {
        const at = links.indexOf(link);
        if (at >= 0) links.splice(at, 1);
      };
      accept(far);
      return Promise.resolve(near);
    },
    listen(listening) {
      if (accept !== undefined)
        return Promise.reject(new WireError("dial_failed", "memory: somebody listens already"));
      accept = listening.accept;
      const listener: Listener = {
        address: "memory",
        close: () => {
          if (accept === listening.accept) accept = undefined;
          return Promise.resolve();
        },
      };
      return Promise.resolve(listener);
    },
  };
}

class MemoryConnection implements Connection {
  readonly remote: string;
  peer: MemoryConnection | undefined;
  stalled = false;
  onGone: (() => void) | undefined;
  readonly #clock: Clock;
  readonly #chunkBytes: (available: number) => number;
  #handlers: ConnectionHandlers | undefined;
  #queue: Uint8Array[] = [];
  #queued = 0;
  #wasFull = false;
  #scheduled = false;
  #ending = false;
  #gone = false;

  constructor(remote: string, clock: Clock, chunkBytes: (available: number) => number) {
    this.remote = remote;
    this.#clock = clock;
    this.#chunkBytes = chunkBytes;
  }

  get queuedBytes(): number {
    return this.#queued;
  }

  open(handlers: ConnectionHandlers): void {
    this.#handlers = handlers;
    this.peer?.resume();
  }

  write(chunks: readonly Uint8Array[]): void {
    if (this.#gone || this.#ending) return;
    for (const chunk of chunks) {
      this.#queue.push(chunk);
      this.#queued += chunk.length;
    }
    if (this.#queued >= FULL_BYTES) this.#wasFull = true;
    this.#schedule();
  }

  end(lingerMs: number): void {
    if (this.#gone || this.#ending) return;
    this.#ending = true;
    this.#clock.setTimer(() => this.destroy(), lingerMs);
    this.#schedule();
  }

  destroy(error?: Error): void {
    if (this.#gone) return;
    this.#gone = true;
    this.#queue = [];
    this.#queued = 0;
    this.onGone?.();
    this.#clock.defer(() => this.#handlers?.closed(error));
    const { peer } = this;
    // A peer behind a stalled network hears nothing of it.
    if (peer !== undefined && !this.stalled) this.#clock.defer(() => peer.destroy());
  }

  resume(): void {
    this.stalled = false;
    this.#schedule();
    if (this.#gone) this.peer?.destroy();
  }

  #schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    this.#clock.defer(() => {
      this.#scheduled = false;
      this.#deliver();
    });
  }

  #deliver(): void {
    const { peer } = this;
    if (peer === undefined || this.#gone || this.stalled) return;
    const to = peer.#handlers;
    if (to === undefined) return;
    while (this.#queue.length > 0 && !this.#gone && !peer.#gone) {
      const chunk = this.#queue[0] ?? new Uint8Array(0);
      const length = Math.max(1, Math.min(chunk.length, this.#chunkBytes(chunk.length)));
      if (length >= chunk.length) this.#queue.shift();
      else this.#queue[0] = chunk.subarray(length);
      this.#queued -= Math.min(length, chunk.length);
      // A copy: the two ends share no memory, as with a socket.
      if (chunk.length > 0) to.data(chunk.slice(0, length));
    }
    if (this.#ending && this.#queue.length === 0) {
      this.destroy();
      return;
    }
    if (this.#wasFull && this.#queued === 0 && !this.#gone) {
      this.#wasFull = false;
      this.#handlers?.drained();
    }
  }
}
