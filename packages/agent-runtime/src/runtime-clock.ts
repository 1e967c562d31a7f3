/** Where waits come from; any clock that a host has. */
export interface RuntimeClock {
  /** Calls `callback` once after `delayMs`, unless it was cancelled before. */
  setTimer(callback: () => void, delayMs: number): { cancel(): void };
}

/** The process's own time. */
export const realClock: RuntimeClock = {
  setTimer(callback, delayMs) {
    const timeout = setTimeout(callback, delayMs);
    return { cancel: () => clearTimeout(timeout) };
  },
};
