import { MAX_HEAD_BYTES } from "./hot-codec.ts";

const SLAB_BYTES = 32 * 1024;
// Up to here copying is cheaper than one more entry in the write vector.
const COPY_BYTES = 4 * 1024;

/**
 * Collects the frames of one flush as few chunks: heads and small bodies next to each other in a slab,
 * long bodies by reference. Regions of a slab are never reused, so chunks that were handed out stay
 * valid until the transport has taken them.
 */
export class FrameWriter {
  /** Bytes collected since the last `finish`. */
  bytes = 0;
  #slab: Uint8Array = new Uint8Array(0);
  #start = 0;
  #at = 0;
  #chunks: Uint8Array[] = [];

  /** A place for `MAX_HEAD_BYTES`, from `offset` on; `commit` says what was written there. */
  reserve(): Uint8Array {
    this.#room(MAX_HEAD_BYTES);
    return this.#slab;
  }

  /** Where to write after `reserve`. */
  get offset(): number {
    return this.#at;
  }

  /** Ends a head that was written from `offset` up to `end`. */
  commit(end: number): void {
    this.bytes += end - this.#at;
    this.#at = end;
  }

  /** Adds `bytes`, which must not change afterwards. */
  push(bytes: Uint8Array): void {
    this.bytes += bytes.length;
    if (bytes.length <= COPY_BYTES) {
      this.#room(bytes.length);
      this.#slab.set(bytes, this.#at);
      this.#at += bytes.length;
    } else {
      this.#seal();
      this.#chunks.push(bytes);
    }
  }

  /** All that was collected; the writer is empty again. */
  finish(): Uint8Array[] {
    this.#seal();
    const chunks = this.#chunks;
    this.#chunks = [];
    this.bytes = 0;
    return chunks;
  }

  #room(bytes: number): void {
    if (this.#slab.length - this.#at >= bytes) return;
    this.#seal();
    this.#slab = new Uint8Array(SLAB_BYTES);
    this.#start = 0;
    this.#at = 0;
  }

  #seal(): void {
    if (this.#at > this.#start) this.#chunks.push(this.#slab.subarray(this.#start, this.#at));
    this.#start = this.#at;
  }
}
