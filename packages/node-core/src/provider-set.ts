import type { ProviderConfig, ProviderRegistry } from "@iop/agent-runtime";
import { RuntimeError } from "@iop/agent-runtime";
import type { Clock, NodeConfigPayload, ProviderConfig as WireProviderConfig } from "@iop/wire";

import { describeFailure } from "./failure-text.ts";
import { NodeError } from "./node-error.ts";
import type { NodeProviderStatus, ProviderOutcome } from "./node-listeners.ts";
import type { Allowance, CheckedProviderConfig } from "./provider-config.ts";
import { checkProviderConfig, isSameConfig } from "./provider-config.ts";
import type { ProviderUse } from "./provider-instance.ts";
import { ProviderInstance } from "./provider-instance.ts";

type Listener = (status: NodeProviderStatus) => void;

/** How a configured provider stands: its instance, or why there is none. */
type Standing = ProviderInstance | string;

interface Change {
  readonly signal: AbortSignal;
  readonly serving?: AbortSignal | undefined;
}

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
      typeof standing === "string" ? refused(id, standing) : standing.watch.status,
    );
  }

  /** Calls `listener` when a provider becomes known or changes its health. Answers what ends that. */
  onChange(listener: Listener): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /**
   * Begins a piece of work, to be disposed of once that has stopped.
   * @throws RuntimeError `unknown_provider`, `provider_unavailable`.
   */
  use(id: string): ProviderUse {
    const standing = this.#standings.get(id);
    if (standing === undefined)
      throw new RuntimeError(
        "unknown_provider",
        `there is no provider ${JSON.stringify(id.slice(0, 100))} here`,
      );
    if (typeof standing === "string")
      throw new RuntimeError("provider_unavailable", `provider ${id}: ${standing}`);
    return standing.use();
  }

  /** Asks a provider for its health, now. */
  recheck(id: string): void {
    const standing = this.#standings.get(id);
    if (standing instanceof ProviderInstance) void standing.watch.check();
  }

  /**
   * Makes the set what `payload` says: starts what is new or changed, stops what is gone, keeps the rest. New
   * providers have been asked for their health once when it resolves, with what came of each provider. Not to
   * be called again before it has settled.
   *
   * Work of the sessions before has been aborted. With `serving` there is work of this session, which goes on
   * until it ends or that fires, on the instances that it began on; a provider that is misconfigured is then no
   * reason to fail.
   * @throws NodeError `invalid_provider_config`; the signal's reason when aborted.
   */
  async apply(payload: NodeConfigPayload, change: Change): Promise<readonly ProviderOutcome[]> {
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
      if (standing instanceof ProviderInstance && !wanted.has(id))
        void standing.retire(this.#registry, change.serving);
    }
    const outcomes = await Promise.allSettled(
      [...wanted].map(([id, configs]) => this.#place(id, configs, before.get(id), change)),
    );
    for (const outcome of outcomes) {
      if (outcome.status === "rejected") throw outcome.reason;
    }
    return [...this.#standings].map(([id, standing]) =>
      typeof standing === "string"
        ? { id, accepted: false, reason: standing }
        : { id, accepted: true, reason: "" },
    );
  }

  /** Stops all of them. Never rejects; bounded. */
  async stop(): Promise<void> {
    for (const standing of this.#standings.values())
      if (standing instanceof ProviderInstance) void standing.retire(this.#registry);
    this.#standings.clear();
    await this.#registry.stop();
  }

  async #place(
    id: string,
    configs: readonly WireProviderConfig[],
    before: Standing | undefined,
    change: Change,
  ): Promise<void> {
    const { config, refusal } = this.#check(configs);
    if (before instanceof ProviderInstance) {
      if (config !== undefined && isSameConfig(config, before.registered.config)) return;
      this.#standings.set(id, "its configuration has changed");
      const retired = before.retire(this.#registry, change.serving);
      if (change.serving === undefined) await until(change.signal, retired);
    }
    if (config === undefined) this.#refuse(id, refusal, before);
    else await this.#start(config, before, change);
  }

  #check(configs: readonly WireProviderConfig[]): CheckedProviderConfig {
    const [wire] = configs;
    if (wire === undefined || configs.length > 1) return { refusal: "configured more than once" };
    return checkProviderConfig(wire, this.#allow);
  }

  async #start(
    config: ProviderConfig,
    before: Standing | undefined,
    { signal, serving }: Change,
  ): Promise<void> {
    const { id } = config;
    try {
      const registered = await this.#registry.add(config, { signal });
      const instance = new ProviderInstance({
        registered,
        clock: this.#clock,
        changed: (status) => this.#tell(status),
      });
      this.#standings.set(id, instance);
      await until(signal, instance.watch.check());
    } catch (error) {
      signal.throwIfAborted();
      if (RuntimeError.is(error) && error.code === "invalid_config") {
        if (serving !== undefined) return this.#refuse(id, error.message, before);
        throw new NodeError("invalid_provider_config", `provider ${id}: ${error.message}`, { cause: error });
      }
      this.#refuse(id, describeFailure(error), before);
    }
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
