import type { ProviderHealth, RegisteredProvider } from "@iop/agent-runtime";
import { RuntimeError } from "@iop/agent-runtime";
import type { Clock, Timer } from "@iop/wire";

import { withDeadline } from "./deadline.ts";
import { describeFailure } from "./failure-text.ts";
import type { NodeProviderStatus } from "./node-listeners.ts";

/** How long a server may take to say whether it serves, in milliseconds. */
const HEALTH_TIMEOUT_MS = 5_000;
/** How long a provider may then take to say what it knows, in milliseconds: what it has to stop any work. */
const HEALTH_SETTLE_MS = 2_000;
/** Between two questions while it does not serve, in milliseconds. */
const HEALTH_INTERVAL_MS = 5_000;
const REASON_LENGTH = 500;

/** Whether a provider serves: asked once, and then again and again while it is not `ok`. */
export class HealthWatch {
  /** Whose health it is. */
  readonly registered: RegisteredProvider;
  readonly #clock: Clock;
  readonly #changed: (status: NodeProviderStatus) => void;
  readonly #ended = new AbortController();
  #health: NodeProviderStatus["health"] = "offline";
  #reason = "its health is not known yet";
  #known = false;
  #checking: Promise<void> | undefined;
  #nextCheck: Timer | undefined;

  /** `changed` is told the health once it is known, and when it changes. */
  constructor(options: {
    readonly registered: RegisteredProvider;
    readonly clock: Clock;
    readonly changed: (status: NodeProviderStatus) => void;
  }) {
    this.registered = options.registered;
    this.#clock = options.clock;
    this.#changed = options.changed;
  }

  get status(): NodeProviderStatus {
    const { id, capabilities, gate } = this.registered;
    return {
      id,
      health: this.#health,
      reason: this.#reason,
      maxConcurrency: capabilities.maxConcurrency,
      inFlight: gate.inFlight,
    };
  }

  /** Asks now; where a question is under way, waits for its answer. Never rejects; bounded. */
  check(): Promise<void> {
    this.#nextCheck?.cancel();
    this.#checking ??= this.#check();
    return this.#checking;
  }

  /** No more questions; the provider is about to stop. */
  end(): void {
    const { id } = this.registered;
    this.#ended.abort(new RuntimeError("cancelled", `provider ${id} is stopping`));
    this.#nextCheck?.cancel();
  }

  async #check(): Promise<void> {
    const { health, reason } = await this.#ask();
    this.#checking = undefined;
    if (this.#ended.signal.aborted) return;
    this.#set(health, health === "ok" ? "" : (reason ?? "no reason given").slice(0, REASON_LENGTH));
    if (health !== "ok") this.#nextCheck = this.#clock.setTimer(() => void this.check(), HEALTH_INTERVAL_MS);
  }

  async #ask(): Promise<ProviderHealth> {
    const { provider } = this.registered;
    if (provider.health === undefined) return { health: "ok" };
    try {
      return await withDeadline(
        {
          clock: this.#clock,
          ms: HEALTH_TIMEOUT_MS,
          settleMs: HEALTH_SETTLE_MS,
          signal: this.#ended.signal,
          what: "no answer to the health check",
        },
        async (signal) => (await provider.health?.({ signal })) ?? { health: "ok" },
      );
    } catch (error) {
      return { health: "offline", reason: describeFailure(error) };
    }
  }

  #set(health: NodeProviderStatus["health"], reason: string): void {
    if (this.#known && this.#health === health) {
      this.#reason = reason;
      return;
    }
    this.#known = true;
    this.#health = health;
    this.#reason = reason;
    this.#changed(this.status);
  }
}
