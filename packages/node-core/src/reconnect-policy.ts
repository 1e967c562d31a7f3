/** A session that was ready for this long ends a row of failures, in milliseconds (transport.md §4.1: below it, resets make busy loops). */
const STABLE_MS = 30_000;
/** Each wait is spread by this part of it. */
const JITTER = 0.2;
/** An Edge may ask for this many intervals at most. */
const LONGEST_INTERVALS = 10;

/** How an attempt ended that may be made again. */
export interface AttemptEnd {
  /** How long the session was ready, in milliseconds; 0: never. */
  readonly readyMs: number;
  /** How long the Edge asked to wait, in milliseconds; 0: it did not. */
  readonly retryAfterMs: number;
}

/** Counts failures in a row and says how long to wait; the same for whatever failed. */
export class ReconnectPolicy {
  readonly #maxAttempts: number;
  readonly #intervalMs: number;
  readonly #random: () => number;
  #failures = 0;

  /** `maxAttempts` 0: unlimited. `random` answers from 0 to below 1. */
  constructor(options: {
    readonly maxAttempts: number;
    readonly intervalMs: number;
    readonly random: () => number;
  }) {
    this.#maxAttempts = options.maxAttempts;
    this.#intervalMs = options.intervalMs;
    this.#random = options.random;
  }

  /** The number of the next attempt in this row, from 1. */
  get attempt(): number {
    return this.#failures + 1;
  }

  /** Takes note of an end. Answers the wait before the next attempt, in milliseconds; undefined: give up. */
  ended(end: AttemptEnd): number | undefined {
    this.#failures = end.readyMs >= STABLE_MS ? 0 : this.#failures + 1;
    if (this.#maxAttempts > 0 && this.#failures >= this.#maxAttempts) return undefined;
    const spread = this.#random();
    const own = this.#intervalMs * (1 - JITTER + 2 * JITTER * spread);
    const longest = this.#intervalMs * LONGEST_INTERVALS;
    // What the Edge asks for is the least, so it is spread upwards only.
    const asked = Math.min(end.retryAfterMs * (1 + JITTER * spread), longest);
    return Math.round(Math.max(own, asked));
  }
}
