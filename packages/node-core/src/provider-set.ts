import type { Adapter, Provider, ProviderConfig } from "@iop/agent-runtime";
import { CapacityGate, RuntimeError } from "@iop/agent-runtime";
import type { Clock, NodeConfigPayload, ProviderConfig as WireProviderConfig } from "@iop/wire";

import { withDeadline } from "./deadline.ts";
import { describeFailure, HostedProvider, stopProvider } from "./hosted-provider.ts";
import { NodeError } from "./node-error.ts";
import type { NodeProviderStatus } from "./node-listeners.ts";
import type { Allowance } from "./provider-config.ts";
import { checkProviderConfig, fingerprint } from "./provider-config.ts";

/** How long a provider may take to start, in milliseconds. */
const START_TIMEOUT_MS = 30_000;

type Listener = (status: NodeProviderStatus) => void;

/** A configured provider: one that runs, or one that may not, and why. */
type Entry =
  | { readonly hosted: HostedProvider; readonly print: string; readonly refusal?: undefined }
  | { readonly hosted?: undefined; readonly refusal: string };

/**
 * The providers that the Edge's configuration names, across sessions: an instance, its gate and what is
 * known of its health are kept while its configuration stays the same.
 */
export class ProviderSet {
  readonly #adapters: ReadonlyMap<string, Adapter>;
  readonly #allow: Allowance;
  readonly #env: (name: string) => string | undefined;
  readonly #clock: Clock;
  readonly #listeners = new Set<Listener>();
  readonly #retiring = new Set<Promise<void>>();
  #entries = new Map<string, Entry>();

  constructor(options: {
    readonly adapters: ReadonlyMap<string, Adapter>;
    readonly allow: Allowance;
    readonly env: (name: string) => string | undefined;
    readonly clock: Clock;
  }) {
    this.#adapters = options.adapters;
    this.#allow = options.allow;
    this.#env = options.env;
    this.#clock = options.clock;
  }

  /** All configured providers. */
  get statuses(): readonly NodeProviderStatus[] {
    return [...this.#entries].map(([id, entry]) => entry.hosted?.status ?? refused(id, entry.refusal ?? ""));
  }

  /** Calls `listener` when a provider becomes known or changes its health. Answers what ends that. */
  onChange(listener: Listener): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** @throws RuntimeError `unknown_provider`, `provider_unavailable`. */
  get(id: string): HostedProvider {
    const entry = this.#entries.get(id);
    if (entry === undefined)
      throw new RuntimeError("unknown_provider", `this node has no provider ${JSON.stringify(id)}`);
    if (entry.hosted === undefined)
      throw new RuntimeError("provider_unavailable", `provider ${id}: ${entry.refusal}`);
    return entry.hosted;
  }

  /**
   * Makes the set what `payload` says: starts what is new or changed, stops what is gone, keeps the rest.
   * Work of the sessions before has been aborted. New providers have been asked for their health once when
   * it resolves. Not to be called again before it has settled.
   * @throws NodeError `invalid_provider_config`; the signal's reason when aborted.
   */
  async apply(payload: NodeConfigPayload, signal: AbortSignal): Promise<void> {
    const before = this.#entries;
    const wanted = new Map<string, WireProviderConfig[]>();
    for (const config of payload.providers) {
      const same = wanted.get(config.id);
      if (same === undefined) wanted.set(config.id, [config]);
      else same.push(config);
    }
    this.#entries = new Map();
    // In the order of the configuration; each is replaced below.
    for (const id of wanted.keys()) this.#entries.set(id, before.get(id) ?? { refusal: "not started" });
    for (const [id, { hosted }] of before) {
      if (hosted !== undefined && !wanted.has(id)) void this.#retire(hosted);
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
    const entries = [...this.#entries.values()];
    this.#entries.clear();
    for (const { hosted } of entries) if (hosted !== undefined) void this.#retire(hosted);
    await Promise.all(this.#retiring);
  }

  async #place(
    id: string,
    configs: readonly WireProviderConfig[],
    before: Entry | undefined,
    signal: AbortSignal,
  ): Promise<void> {
    const { config, adapter, refusal } = this.#check(configs);
    if (config !== undefined && before?.hosted !== undefined && before.print === fingerprint(config)) return;
    if (before?.hosted !== undefined) {
      this.#entries.set(id, { refusal: "its configuration has changed" });
      await this.#until(signal, this.#retire(before.hosted));
    }
    if (config === undefined) {
      this.#refuse(id, refusal, before);
      return;
    }
    try {
      const hosted = await this.#start(config, adapter, before?.hosted?.gate, signal);
      this.#entries.set(id, { hosted, print: fingerprint(config) });
      await this.#until(signal, hosted.check());
    } catch (error) {
      if (signal.aborted) throw error;
      if (RuntimeError.is(error) && error.code === "invalid_config") {
        throw new NodeError("invalid_provider_config", `provider ${id}: ${error.message}`, { cause: error });
      }
      this.#refuse(id, describeFailure(error), before);
    }
  }

  #check(
    configs: readonly WireProviderConfig[],
  ):
    | { readonly config: ProviderConfig; readonly adapter: Adapter; readonly refusal?: undefined }
    | { readonly config?: undefined; readonly adapter?: undefined; readonly refusal: string } {
    const [wire] = configs;
    if (wire === undefined || configs.length > 1) return { refusal: "configured more than once" };
    const adapter = this.#adapters.get(wire.adapter);
    if (adapter === undefined)
      return { refusal: `this node has no adapter ${JSON.stringify(wire.adapter.slice(0, 100))}` };
    const { config, refusal } = checkProviderConfig(wire, this.#allow);
    return config === undefined ? { refusal } : { config, adapter };
  }

  async #start(
    config: ProviderConfig,
    adapter: Adapter,
    gate: CapacityGate | undefined,
    signal: AbortSignal,
  ): Promise<HostedProvider> {
    const provider = adapter.create(config, { env: this.#env });
    try {
      const { maxConcurrency } = provider.capabilities();
      await startProvider(provider, this.#clock, signal);
      return new HostedProvider({
        id: config.id,
        provider,
        gate: sameGate(gate, maxConcurrency),
        clock: this.#clock,
        changed: (status) => this.#tell(status),
      });
    } catch (error) {
      await stopProvider(provider, this.#clock);
      throw error;
    }
  }

  async #retire(hosted: HostedProvider): Promise<void> {
    const stopped = hosted.stop();
    this.#retiring.add(stopped);
    await stopped;
    this.#retiring.delete(stopped);
  }

  // What is waited for is bounded itself and goes on after an abort.
  async #until(signal: AbortSignal, done: Promise<void>): Promise<void> {
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

  #refuse(id: string, refusal: string, before: Entry | undefined): void {
    this.#entries.set(id, { refusal });
    if (before?.refusal !== refusal) this.#tell(refused(id, refusal));
  }

  #tell(status: NodeProviderStatus): void {
    for (const listener of this.#listeners) listener(status);
  }
}

// Work of the instance before may still hold places: its gate stays.
function sameGate(gate: CapacityGate | undefined, limit: number): CapacityGate {
  if (gate === undefined) return new CapacityGate(limit);
  gate.setLimit(limit);
  return gate;
}

async function startProvider(provider: Provider, clock: Clock, signal: AbortSignal): Promise<void> {
  if (provider.start === undefined) return;
  await withDeadline({ clock, ms: START_TIMEOUT_MS, signal, what: "starting" }, async (inner) =>
    provider.start?.({ signal: inner }),
  );
}

function refused(id: string, reason: string): NodeProviderStatus {
  return { id, health: "offline", reason, maxConcurrency: 0, inFlight: 0 };
}
