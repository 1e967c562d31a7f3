/** Longest delay that a timer takes, in milliseconds; a longer limit is looked at in pieces. */
const MAX_DELAY_MS = 0x7fff_ffff;

/**
 * Tells when nothing has happened for a while. A sign of life only notes the time, so that one costs next to
 * nothing: the one timer looks at the notes when it fires, and is set anew for what is left.
 */
export class SilenceTimer {
  #limitMs = 0;
  #expired: () => void = () => {};
  #since = 0;
  #suspended = false;
  #timer: NodeJS.Timeout | undefined;
  #recheck: NodeJS.Immediate | undefined;

  /** From now on `expired` is called once after `limitMs` of silence; 0: never. Replaces what was watched before. */
  watch(limitMs: number, expired: () => void): void {
    this.stop();
    this.#limitMs = limitMs;
    this.#expired = expired;
    this.touch();
    this.#arm(limitMs);
  }

  /** A sign of life. */
  touch(): void {
    this.#since = performance.now();
  }

  /** Time does not count until `resume`. */
  suspend(): void {
    this.#suspended = true;
  }

  /** Time counts again, from 0. */
  resume(): void {
    this.#suspended = false;
    this.touch();
    if (this.#timer === undefined && this.#recheck === undefined) this.#arm(this.#limitMs);
  }

  /** Watches nothing any more. */
  stop(): void {
    clearTimeout(this.#timer);
    clearImmediate(this.#recheck);
    this.#timer = undefined;
    this.#recheck = undefined;
    this.#limitMs = 0;
  }

  #arm(delayMs: number): void {
    if (this.#limitMs > 0) this.#timer = setTimeout(() => this.#look(), Math.min(delayMs, MAX_DELAY_MS));
  }

  #look(): void {
    this.#timer = undefined;
    if (this.#suspended) return;
    const left = this.#left();
    if (left > 0) this.#arm(left);
    // After a blocked event loop, or a computer's sleep, timers come before what has arrived meanwhile.
    else this.#recheck = setImmediate(() => this.#lookAgain());
  }

  #lookAgain(): void {
    this.#recheck = undefined;
    if (this.#suspended) return;
    const left = this.#left();
    if (left > 0) this.#arm(left);
    else this.#expired();
  }

  #left(): number {
    return this.#since + this.#limitMs - performance.now();
  }
}
