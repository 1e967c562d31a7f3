const decoder = new TextDecoder("utf-8", { ignoreBOM: true });

/** Copies a short piece of UTF-8 that may come in parts; remembers only that it was too long if it was. */
export class BoundedText {
  readonly #bytes: Uint8Array;
  #length = 0;
  #limit = 0;

  /** `capacity` in bytes is the most that `begin` may ask for. */
  constructor(capacity: number) {
    this.#bytes = new Uint8Array(capacity);
  }

  /** Starts over, for a piece of at most `limit` bytes. */
  begin(limit: number): void {
    this.#length = 0;
    this.#limit = limit;
  }

  /** Adds the bytes of `chunk` from `from` to before `to`. */
  add(chunk: Uint8Array, from: number, to: number): void {
    const length = this.#length + (to - from);
    if (length <= this.#limit) this.#bytes.set(chunk.subarray(from, to), this.#length);
    this.#length = length;
  }

  /** Bytes so far, also those that were not kept. */
  get length(): number {
    return this.#length;
  }

  /** The text, or undefined where it was longer than the limit. */
  text(): string | undefined {
    return this.#length <= this.#limit ? decoder.decode(this.#bytes.subarray(0, this.#length)) : undefined;
  }
}
