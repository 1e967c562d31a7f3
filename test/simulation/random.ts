/** Draws that repeat for the same seed. */
export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
    // Neighbouring seeds differ little at first.
    for (let count = 0; count < 8; count++) this.#next();
  }

  /** A whole number from 0 and below `bound`. */
  below(bound: number): number {
    return Math.floor((this.#next() / 0x1_0000_0000) * bound);
  }

  /** True once in `times`. */
  once(times: number): boolean {
    return this.below(times) === 0;
  }

  /** Undefined of nothing. */
  one<T>(of: readonly T[]): T | undefined {
    return of[this.below(of.length)];
  }

  /** Some of them, in their order; never none of some. */
  some<T>(of: readonly T[]): T[] {
    const found = of.filter(() => this.once(2));
    const one = this.one(of);
    return found.length > 0 || one === undefined ? found : [one];
  }

  // mulberry32
  #next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), this.#state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return (mixed ^ (mixed >>> 14)) >>> 0;
  }
}
