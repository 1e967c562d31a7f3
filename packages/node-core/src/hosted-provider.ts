import type { CapacityGate, Provider, ProviderHealth } from "@iop/agent-runtime";
import { RuntimeError } from "@iop/agent-runtime";
import type { Clock, Timer } from "@iop/wire";
import { WireError } from "@iop/wire";

import { pause, withDeadline } from "./deadline.ts";
import type { NodeProviderStatus } from "./node-listeners.ts";

/** How long a server may take to say whether it serves, in milliseconds. */
const HEALTH_TIMEOUT_MS = 3_000;
/** Between two questions while it does not serve, in milliseconds. */
const HEALTH_INTERVAL_MS = 5_000;
/** How long work that was aborted, and then the provider's own `stop`, may take, in milliseconds; a provider has 2 s to stop its work. */
const STOP_TIMEOUT_MS = 5_000;
const REASON_LENGTH = 500;

/** A place in a provider's gate. */
export interface Admission {
  /** Gives the place back, once the provider's work has stopped. Idempotent. */
  end(): void;
}

/** A provider that this Node runs: its gate, its health, and its end. */
export class HostedProvider {
  readonly id: string;
  readonly provider: Provider;
  readonly gate: CapacityGate;
  readonly #operations: ReadonlySet<string>;
  readonly #maxConcurrency: number;
  readonly #clock: Clock;
  readonly #changed: (status: NodeProviderStatus) => void;
  readonly #stopping = new AbortController();
  readonly #idle = new AbortController();
  #health: NodeProviderStatus["health"] = "offline";
  #reason = "its health is not known yet";
  #known = false;
  #inFlight = 0;
  #checking: Promise<void> | undefined;
  #nextCheck: Timer | undefined;

  /** `provider` has started. `changed` is told the health once it is known, and when it changes. */
  constructor(options: {
    readonly id: string;
    readonly provider: Provider;
    readonly gate: CapacityGate;
    readonly clock: Clock;
    readonly changed: (status: NodeProviderStatus) => void;
  }) {
    this.id = options.id;
    this.provider = options.provider;
    this.gate = options.gate;
    this.#clock = options.clock;
    this.#changed = options.changed;
    const { operations, maxConcurrency } = options.provider.capabilities();
    this.#operations = new Set(operations);
    this.#maxConcurrency = maxConcurrency;
  }

  get status(): NodeProviderStatus {
    return {
      id: this.id,
      health: this.#health,
      reason: this.#reason,
      maxConcurrency: this.#maxConcurrency,
      inFlight: this.gate.inFlight,
    };
  }

  /** Whether `tunnel` accepts the operation; an empty one leaves it to the provider, which looks at the path. */
  serves(operation: string): boolean {
    return operation === "" || this.#operations.has(operation);
  }

  /**
   * Takes a place for one piece of work.
   * @throws RuntimeError `provider_unavailable`, `capacity_exhausted`.
   */
  admit(): Admission {
    if (this.#stopping.signal.aborted)
      throw new RuntimeError("provider_unavailable", `provider ${this.id} is stopping`);
    if (this.#health === "offline")
      throw new RuntimeError("provider_unavailable", `provider ${this.id}: ${this.#reason}`);
    const permit = this.gate.tryAcquire();
    if (permit === undefined)
      throw new RuntimeError("capacity_exhausted", `provider ${this.id} is at its capacity`);
    this.#inFlight++;
    let ended = false;
    return {
      end: () => {
        if (ended) return;
        ended = true;
        permit.release();
        this.#inFlight--;
        if (this.#inFlight === 0 && this.#stopping.signal.aborted) this.#idle.abort();
      },
    };
  }

  /** Asks the provider for its health, now, and from then on again and again while it is not `ok`. Never rejects. */
  check(): Promise<void> {
    this.#nextCheck?.cancel();
    this.#checking ??= this.#check();
    return this.#checking;
  }

  /** Ends it: waits for its work, which others have aborted, then stops the provider. Never rejects; bounded. */
  async stop(): Promise<void> {
    if (this.#stopping.signal.aborted) return;
    this.#stopping.abort(new RuntimeError("cancelled", `provider ${this.id} is stopping`));
    this.#nextCheck?.cancel();
    if (this.#inFlight > 0) await pause(this.#clock, STOP_TIMEOUT_MS, this.#idle.signal);
    await stopProvider(this.provider, this.#clock);
  }

  async #check(): Promise<void> {
    const { health, reason } = await this.#ask();
    this.#checking = undefined;
    if (this.#stopping.signal.aborted) return;
    this.#set(health, health === "ok" ? "" : (reason ?? "no reason given").slice(0, REASON_LENGTH));
    if (health !== "ok") this.#nextCheck = this.#clock.setTimer(() => void this.check(), HEALTH_INTERVAL_MS);
  }

  async #ask(): Promise<ProviderHealth> {
    const { provider } = this;
    if (provider.health === undefined) return { health: "ok" };
    try {
      return await withDeadline(
        {
          clock: this.#clock,
          ms: HEALTH_TIMEOUT_MS,
          signal: this.#stopping.signal,
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

/** Stops a provider that has no work. Never rejects; bounded. */
export async function stopProvider(provider: Provider, clock: Clock): Promise<void> {
  if (provider.stop === undefined) return;
  try {
    await withDeadline(
      { clock, ms: STOP_TIMEOUT_MS, signal: new AbortController().signal, what: "stopping" },
      async () => provider.stop?.(),
    );
  } catch {
    // It is over for us either way, and nothing of ours is left in it.
  }
}

/** A failure in words that may leave this process: an error of no known class could quote a prompt. */
export function describeFailure(error: unknown): string {
  if (RuntimeError.is(error) || WireError.is(error)) return error.message;
  return `the adapter failed (${error instanceof Error ? error.name : typeof error})`;
}
