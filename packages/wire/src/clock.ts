/** A timer that has not fired yet. `cancel` is idempotent. */
export interface Timer {
  cancel(): void;
}

/** Time, as everything in this package sees it: real by default, virtual in tests. */
export interface Clock {
  /** Milliseconds, monotonic, from an arbitrary origin. */
  now(): number;
  /** Milliseconds since the epoch; may jump. */
  wallNow(): number;
  /** Calls `callback` once after `delayMs`. Does not keep a process alive. */
  setTimer(callback: () => void, delayMs: number): Timer;
  /** Calls `callback` once, soon: after the input that is already waiting has been read. */
  defer(callback: () => void): void;
}

/** The process's own time. */
export const realClock: Clock = {
  now: () => performance.now(),
  wallNow: () => Date.now(),
  setTimer(callback, delayMs) {
    const timeout = setTimeout(callback, delayMs);
    timeout.unref();
    return { cancel: () => clearTimeout(timeout) };
  },
  defer: (callback) => {
    setImmediate(callback);
  },
};
