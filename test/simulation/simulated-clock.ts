import type { Clock, Timer } from "@iop/wire";

/** A clock that is moved on in one turn, without promise jobs in between: what falls due together meets. */
export class SimulatedClock implements Clock {
  #now = 0;
  readonly #timers = new Set<{ readonly due: number; readonly callback: () => void }>();

  now(): number {
    return this.#now;
  }

  wallNow(): number {
    return this.#now;
  }

  setTimer(callback: () => void, delayMs: number): Timer {
    const timer = { due: this.#now + Math.max(0, delayMs), callback };
    this.#timers.add(timer);
    return { cancel: () => void this.#timers.delete(timer) };
  }

  defer(): void {
    throw new Error("nothing here reads from a network");
  }

  /** Timers that have not fired. */
  get pending(): number {
    return this.#timers.size;
  }

  /** Moves on by `ms`, firing what falls due, in order. */
  advance(ms: number): void {
    const end = this.#now + ms;
    for (;;) {
      let next: { readonly due: number; readonly callback: () => void } | undefined;
      for (const timer of this.#timers)
        if (timer.due <= end && (next === undefined || timer.due < next.due)) next = timer;
      if (next === undefined) break;
      this.#timers.delete(next);
      this.#now = Math.max(this.#now, next.due);
      next.callback();
    }
    this.#now = end;
  }
}
