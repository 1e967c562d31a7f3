import { WireError } from "./wire-error.ts";

const PREFIX_BYTES = 4;

/**
 * Cuts a byte stream into frames: a big-endian uint32 length, then as many bytes. Each byte is copied
 * at most once: a frame that lies within a chunk is handed out as a view of it, one that spans chunks
 * gets exactly its length, once, after the length has been checked.
 */
export class FrameDecoder {
  /** Longest frame accepted, in bytes; may be raised once a peer is known. */
  maxFrameBytes: number;
  readonly #prefix = new Uint8Array(PREFIX_BYTES);
  #prefixHave = 0;
  #frame: Uint8Array | undefined;
  #frameHave = 0;

  constructor(maxFrameBytes: number) {
    this.maxFrameBytes = maxFrameBytes;
  }

  /**
   * Calls `onFrame` for each frame that `chunk` completes, until it answers false (the rest of the chunk
   * is then dropped).
   * @throws WireError `frame_too_large` over the bound, `protocol_error` on a length of 0; the stream
   *   cannot be resynchronised after either.
   */
  push(chunk: Uint8Array, onFrame: (frame: Uint8Array) => boolean): void {
    let at = 0;
    while (at < chunk.length) {
      if (this.#frame !== undefined) {
        const take = Math.min(this.#frame.length - this.#frameHave, chunk.length - at);
        this.#frame.set(chunk.subarray(at, at + take), this.#frameHave);
        this.#frameHave += take;
        at += take;
        if (this.#frameHave < this.#frame.length) return;
        const frame = this.#frame;
        this.#frame = undefined;
        if (!onFrame(frame)) return;
        continue;
      }
      let length: number;
      if (this.#prefixHave === 0 && chunk.length - at >= PREFIX_BYTES) {
        length = readUint32(chunk, at);
        at += PREFIX_BYTES;
      } else {
        while (this.#prefixHave < PREFIX_BYTES && at < chunk.length) {
          this.#prefix[this.#prefixHave++] = chunk[at++] ?? 0;
        }
        if (this.#prefixHave < PREFIX_BYTES) return;
        this.#prefixHave = 0;
        length = readUint32(this.#prefix, 0);
      }
      if (length === 0) throw new WireError("protocol_error", "frame of length 0");
      if (length > this.maxFrameBytes) {
        throw new WireError(
          "frame_too_large",
          `frame of ${length} bytes; the limit is ${this.maxFrameBytes}`,
        );
      }
      if (chunk.length - at >= length) {
        const frame = chunk.subarray(at, at + length);
        at += length;
        if (!onFrame(frame)) return;
      } else {
        this.#frame = new Uint8Array(length);
        this.#frame.set(chunk.subarray(at));
        this.#frameHave = chunk.length - at;
        return;
      }
    }
  }
}

function readUint32(bytes: Uint8Array, at: number): number {
  return (
    (((bytes[at] ?? 0) << 24) |
      ((bytes[at + 1] ?? 0) << 16) |
      ((bytes[at + 2] ?? 0) << 8) |
      (bytes[at + 3] ?? 0)) >>>
    0
  );
}
