import { EventEmitter, once } from "node:events";

/** What a provider has seen. Requests under `/_test/` and the sockets that made them do not count. */
export interface ProviderState {
  readonly open_sockets: number;
  readonly requests: number;
  readonly active_requests: number;
  readonly max_active_requests: number;
  /** Answered to the end. */
  readonly completed: number;
  /** The client went away before the end. */
  readonly aborted: number;
  /** We went away before the end, because we were asked to. */
  readonly cut: number;
  /** Waiting for `POST /_test/release`. */
  readonly hanging: number;
}

type Counter = "requests" | "completed" | "aborted" | "cut";

/** Counts, and wakes whoever waits for a count. */
export class Counters {
  readonly #changed = new EventEmitter<{ change: [] }>();
  readonly #counts: Record<Counter, number> = { requests: 0, completed: 0, aborted: 0, cut: 0 };
  #sockets = 0;
  #active = 0;
  #maxActive = 0;
  #hanging = 0;

  constructor() {
    this.#changed.setMaxListeners(0);
  }

  socket(change: 1 | -1): void {
    this.#sockets += change;
    this.#changed.emit("change");
  }

  begin(): void {
    this.#counts.requests += 1;
    this.#active += 1;
    this.#maxActive = Math.max(this.#maxActive, this.#active);
    this.#changed.emit("change");
  }

  end(how: Exclude<Counter, "requests">): void {
    this.#active -= 1;
    this.#counts[how] += 1;
    this.#changed.emit("change");
  }

  hang(change: 1 | -1): void {
    this.#hanging += change;
    this.#changed.emit("change");
  }

  state(): ProviderState {
    return {
      open_sockets: this.#sockets,
      requests: this.#counts.requests,
      active_requests: this.#active,
      max_active_requests: this.#maxActive,
      completed: this.#counts.completed,
      aborted: this.#counts.aborted,
      cut: this.#counts.cut,
      hanging: this.#hanging,
    };
  }

  /** Resolves with the first state that fits. @throws the signal's reason. */
  async when(fits: (state: ProviderState) => boolean, signal?: AbortSignal): Promise<ProviderState> {
    for (;;) {
      const state = this.state();
      if (fits(state)) return state;
      await once(this.#changed, "change", { signal });
    }
  }

  /** Forgets what is over: totals to 0, the maximum to what is active now. */
  reset(): void {
    for (const counter of ["requests", "completed", "aborted", "cut"] as const) this.#counts[counter] = 0;
    this.#maxActive = this.#active;
    this.#changed.emit("change");
  }
}
