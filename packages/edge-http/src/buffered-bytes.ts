/** Bytes of request bodies that all requests of a surface hold together. */
export class BufferedBytes {
  readonly limit: number;
  #held = 0;

  constructor(limit: number) {
    this.limit = limit;
  }

  /** What is held now. */
  get held(): number {
    return this.#held;
  }

  /** True if `bytes` more would fit. */
  fits(bytes: number): boolean {
    return this.#held + bytes <= this.limit;
  }

  /** A share that starts empty and is given back once, as a whole. */
  share(): BufferedShare {
    let bytes = 0;
    return {
      take: (more) => {
        if (!this.fits(more)) return false;
        this.#held += more;
        bytes += more;
        return true;
      },
      release: () => {
        this.#held -= bytes;
        bytes = 0;
      },
    };
  }
}

export interface BufferedShare {
  /** False, and nothing taken, where the limit would be passed. */
  readonly take: (bytes: number) => boolean;
  /** Gives all of it back; again: nothing. */
  readonly release: () => void;
}
