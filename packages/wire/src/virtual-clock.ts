import type { Clock, Timer } from "./clock.ts";

/** A clock that stands still until it is told to move. For tests of everything that waits. */
export interface VirtualClock extends Clock {
  /** Moves on by `ms`, firing what falls due in order, deferred callbacks and promise jobs in between. */
  advance(ms: number): Promise<void>;
  /** Runs deferred callbacks and promise jobs until none is left; time stands still. */
  settle(): Promise<void>;
  /** Makes the wall clock jump without the monotonic one, as a machine that slept does. */
  jumpWall(ms: number): void;
  /** Timers that have not fired. */
  readonly pending: number;
}

/** Time 0 on both clocks. */
export function createVirtualClock(): VirtualClock {
  let now = 0;
  let wallOffset = 0;
  let order = 0;
  const timers = new Map<Timer, { due: number; order: number; callback: () => void }>();
  let deferred: Array<() => void> = [];

  const settle = async (): Promise<void> => {
    for (let idle = 0; idle < 2;) {
      // A macrotask lets every promise job run, however long its chain.
      await new Promise<void>((resolve) => {
        setImmediate(resolve);
      });
      const batch = deferred;
      deferred = [];
      for (const callback of batch) callback();
      idle = batch.length === 0 ? idle + 1 : 0;
    }
  };

  return {
    now: () => now,
    wallNow: () => now + wallOffset,
    setTimer(callback, delayMs) {
      const timer: Timer = { cancel: () => void timers.delete(timer) };
      timers.set(timer, { due: now + Math.max(0, delayMs), order: order++, callback });
      return timer;
    },
    defer: (callback) => void deferred.push(callback),
    async advance(ms) {
      const end = now + ms;
      await settle();
      for (;;) {
        let next: [Timer, { due: number; order: number; callback: () => void }] | undefined;
        for (const entry of timers) {
          if (entry[1].due > end) continue;
          if (
            !next ||
            entry[1].due < next[1].due ||
            (entry[1].due === next[1].due && entry[1].order < next[1].order)
          )
            next = entry;
        }
        if (!next) break;
        timers.delete(next[0]);
        now = Math.max(now, next[1].due);
        next[1].callback();
        await settle();
      }
      now = end;
    },
    settle,
    jumpWall(ms) {
      wallOffset += ms;
    },
    get pending() {
      return timers.size;
    },
  };
}
