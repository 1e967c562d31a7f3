import type {
  CapacityPermit,
  ProviderConfig,
  ProviderRegistry,
  RegisteredProvider,
} from "@iop/agent-runtime";
import { RuntimeError } from "@iop/agent-runtime";
import type { Clock, NodeConfigPayload, ProviderConfig as WireProviderConfig } from "@iop/wire";

import { describeFailure } from "./failure-text.ts";
import { HealthWatch } from "./health-watch.ts";
import { NodeError } from "./node-error.ts";
import type { NodeProviderStatus } from "./node-listeners.ts";
import type { Allowance, CheckedProviderConfig } from "./provider-config.ts";
import { checkProviderConfig, isSameConfig } from "./provider-config.ts";

type Listener = (status: NodeProviderStatus) => void;

/** How a configured provider stands: the health of one that runs, or why there is none. */
type Standing = HealthWatch | string;

/**
 * The providers that the Edge's configuration names, across sessions: an instance, its gate and what is
 * known of its health are kept while its configuration stays the same. The instances are the registry's.
 */
export class ProviderSet {
  readonly #registry: ProviderRegistry;
  readonly #allow: Allowance;
  readonly #clock: Clock;
  readonly #listeners = new Set<Listener>();
  #standings = new Map<string, Standing>();

  constructor(options: {
    readonly registry: ProviderRegistry;
    readonly allow: Allowance;
    readonly clock: Clock;
  }) {
    this.#registry = options.registry;
    this.#allow = options.allow;
    this.#clock = options.clock;
  }

  /** All configured providers. */
  get statuses(): readonly NodeProviderStatus[] {
    return [...this.#standings].map(([id, standing]) =>
      typeof standing === "string" ? refused(id, standing) : standing.status,
    );
  }

  /** Calls `listener` when a provider becomes known or changes its health. Answers what ends that. */
  onChange(listener: Listener): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** @throws RuntimeError `unknown_provider`, `provider_unavailable`. */
  get(id: string): RegisteredProvider {
    const standing = this.#standings.get(id);
    if (typeof standing === "string")
      throw new RuntimeError("provider_unavailable", `provider ${id}: ${standing}`);
    return this.#registry.get(id);
  }

  /**
   * Takes a place for one piece of work, to be released once that has stopped.
   * @throws RuntimeError `provider_unavailable`, `capacity_exhausted`.
   */
  admit(registered: RegisteredProvider): CapacityPermit {
    const { id, gate } = registered;
    const watch = this.#watch(id);
    if (watch?.registered !== registered)
      throw new RuntimeError("provider_unavailable", `provider ${id} is stopping`);
    const { health, reason } = watch.status;
    if (health === "offline") throw new RuntimeError("provider_unavailable", `provider ${id}: ${reason}`);
    const permit = gate.tryAcquire();
    if (permit === undefined)
      throw new RuntimeError("capacity_exhausted", `provider ${id} is at its capacity`);
    return permit;
  }

  /** Asks a provider for its health, now. */
  recheck(id: string): void {
    void this.#watch(id)?.check();
  }

  /**
   * Makes the set what `payload` says: starts what is new or changed, stops what is gone, keeps the rest.
   * Work of the sessions before has been aborted. New providers have been asked for their health once when
   * it resolves. Not to be called again before it has settled.
   * @throws NodeError `invalid_provider_config`; the signal's reason when aborted.
   */
  async apply(payload: NodeConfigPayload, signal: AbortSignal): Promise<void> {
    const before = this.#standings;
    const wanted = new Map<string, WireProviderConfig[]>();
    for (const config of payload.providers) {
      const same = wanted.get(config.id);
      if (same === undefined) wanted.set(config.id, [config]);
      else same.push(config);
    }
    this.#standings = new Map();
    // In the order of the configuration; each is replaced below.
    for (const id of wanted.keys()) this.#standings.set(id, before.get(id) ?? "not started");
    for (const [id, standing] of before) {
      if (standing instanceof HealthWatch && !wanted.has(id)) void this.#retire(standing);
    }
    const outcomes = await Promise.allSettled(
      [...wanted].map(([id, configs]) => this.#place(id, configs, before.get(id), signal)),
    );
    for (const outcome of outcomes) {
      if (outcome.status === "rejected") throw outcome.reason;
    }
  }

  /** Stops all of them. Never rejects; bounded. */
  async stop(): Promise<void> {
    for (const standing of this.#standings.values()) if (standing instanceof HealthWatch) standing.end();
    this.#standings.clear();
    await this.#registry.stop();
  }

  async #place(
    id: string,
    configs: readonly WireProviderConfig[],
    before: Standing | undefined,
    signal: AbortSignal,
  ): Promise<void> {
    const { config, refusal } = this.#check(configs);
    if (before instanceof HealthWatch) {
      if (config !== undefined && isSameConfig(config, before.registered.config)) return;
      this.#standings.set(id, "its configuration has changed");
      await until(signal, this.#retire(before));
    }
    if (config === undefined) this.#refuse(id, refusal, before);
    else await this.#start(config, before, signal);
  }

  #check(configs: readonly WireProviderConfig[]): CheckedProviderConfig {
    const [wire] = configs;
    if (wire === undefined || configs.length > 1) return { refusal: "configured more than once" };
    return checkProviderConfig(wire, this.#allow);
  }

  async #start(config: ProviderConfig, before: Standing | undefined, signal: AbortSignal): Promise<void> {
    const { id } = config;
    try {
      const registered = await this.#registry.add(config, { signal });
      const watch = new HealthWatch({
        registered,
        clock: this.#clock,
        changed: (status) => this.#tell(status),
      });
      this.#standings.set(id, watch);
      await until(signal, watch.check());
    } catch (error) {
      signal.throwIfAborted();
      if (RuntimeError.is(error) && error.code === "invalid_config") {
        throw new NodeError("invalid_provider_config", `provider ${id}: ${error.message}`, { cause: error });
      }
      this.#refuse(id, describeFailure(error), before);
    }
  }

  #retire(watch: HealthWatch): Promise<void> {
    watch.end();
    return this.#registry.remove(watch.registered.id);
  }

  #watch(id: string): HealthWatch | undefined {
    const standing = this.#standings.get(id);
    return typeof standing === "string" ? undefined : standing;
  }

  #refuse(id: string, refusal: string, before: Standing | undefined): void {
    this.#standings.set(id, refusal);
    if (before !== refusal) this.#tell(refused(id, refusal));
  }

  #tell(status: NodeProviderStatus): void {
    for (const listener of this.#listeners) listener(status);
  }
}

// What is waited for is bounded itself and goes on after an abort.
async function until(signal: AbortSignal, done: Promise<void>): Promise<void> {
  const { promise, reject } = Promise.withResolvers<never>();
  const aborted = (): void => reject(signal.reason);
  signal.addEventListener("abort", aborted);
  try {
    signal.throwIfAborted();
    await Promise.race([done, promise]);
  } finally {
    signal.removeEventListener("abort", aborted);
  }
}

function refused(id: string, reason: string): NodeProviderStatus {
  return { id, health: "offline", reason, maxConcurrency: 0, inFlight: 0 };
}
