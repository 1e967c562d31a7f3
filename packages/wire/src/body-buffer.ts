import { MAX_BODY_BYTES } from "./flow-limits.ts";

// A chunk longer than this is worth its own frame and its own write.
const MERGE_BYTES = 4 * 1024;
const FIRST_CAPACITY = 1024;

/**
 * Bytes of a body that wait. Small neighbours are put together, so that what waits costs one frame and
 * one write, and no small view keeps a large read buffer alive (see `retain`).
 */
export class BodyBuffer {
  #bytes: Uint8Array;
  #start = 0;
  #end: number;
  #owned: boolean;

  /** Keeps `bytes` by reference, or copied where `retain` is asked for. */
  constructor(bytes: Uint8Array, retained: boolean) {
    this.#bytes = retained ? retain(bytes) : bytes;
    this.#end = this.#bytes.length;
    this.#owned = this.#bytes !== bytes;
  }

  get length(): number {
    return this.#end - this.#start;
  }

  /** The bytes that wait; valid until the next `append`. */
  get view(): Uint8Array {
    return this.#bytes.subarray(this.#start, this.#end);
  }

  /** Takes up to `limit` bytes off the front. */
  take(limit: number): Uint8Array {
    const end = Math.min(this.#end, this.#start + limit);
    const taken = this.#bytes.subarray(this.#start, end);
    this.#start = end;
    return taken;
  }

  /** Puts `chunk` behind; false where it is better kept apart. */
  append(chunk: Uint8Array): boolean {
    const length = this.length + chunk.length;
    if (chunk.length > MERGE_BYTES || length > MAX_BODY_BYTES) return false;
    if (!this.#owned || this.#end + chunk.length > this.#bytes.length) {
      const grown = new Uint8Array(Math.min(MAX_BODY_BYTES, Math.max(FIRST_CAPACITY, 2 * length)));
      grown.set(this.view);
      this.#end = this.length;
      this.#start = 0;
      this.#bytes = grown;
      this.#owned = true;
    }
    this.#bytes.set(chunk, this.#end);
    this.#end += chunk.length;
    return true;
  }
}

/** `bytes`, or a copy where keeping them would keep at least twice their length alive. */
export function retain(bytes: Uint8Array): Uint8Array {
  return bytes.length * 2 <= bytes.buffer.byteLength ? bytes.slice() : bytes;
}
