import type { Adapter, AdapterContext, ProviderConfig } from "./adapter.ts";
import { CapacityGate } from "./capacity-gate.ts";
import type { Provider, ProviderCapabilities, ProviderContext } from "./provider.ts";
import { realClock, type RuntimeClock } from "./runtime-clock.ts";
import { RuntimeError } from "./runtime-error.ts";

/** How long a provider may take to start, in milliseconds. */
const START_TIMEOUT_MS = 15_000;
/**
 * How long a provider's work may take to end once it was aborted, and then its own `stop`, in milliseconds: a
 * provider has 2 s to stop its work.
 */
const STOP_TIMEOUT_MS = 5_000;

/** A provider instance under its stable name, with the one gate that all work of that name passes. */
export interface RegisteredProvider {
  readonly id: string;
  readonly config: ProviderConfig;
  readonly provider: Provider;
  readonly capabilities: ProviderCapabilities;
  /** Its limit is the provider's `maxConcurrency`. */
  readonly gate: CapacityGate;
}

export interface ProviderRegistryOptions {
  /** Kinds that can be made; each kind once. */
  readonly adapters: readonly Adapter[];
  /** Given to each `create`. */
  readonly context: AdapterContext;
  /** Default: real time. */
  readonly clock?: RuntimeClock;
}

/** Adapters by kind, and the provider instances made with them by stable name (spec F5). */
export class ProviderRegistry {
  readonly #adapters = new Map<string, Adapter>();
  readonly #context: AdapterContext;
  readonly #clock: RuntimeClock;
  readonly #providers = new Map<string, RegisteredProvider>();
  readonly #starting = new Set<string>();
  /** Of each name that has an instance, and of those without whose work has not ended. */
  readonly #gates = new Map<string, CapacityGate>();
  readonly #ending = new Set<Promise<void>>();

  /** @throws RuntimeError `invalid_config` where two adapters have the same kind. */
  constructor(options: ProviderRegistryOptions) {
    this.#context = options.context;
    this.#clock = options.clock ?? realClock;
    for (const adapter of options.adapters) {
      if (this.#adapters.has(adapter.kind))
        throw new RuntimeError("invalid_config", `adapters: ${quote(adapter.kind)} is there twice`);
      this.#adapters.set(adapter.kind, adapter);
    }
  }

  /**
   * Makes the instance that `config` describes and starts it, within 15 s. Where that fails, what was made
   * is stopped, and nothing is registered.
   * @throws RuntimeError `unknown_adapter`, `duplicate_provider`, `provider_unavailable` where the start took
   * too long, `cancelled`; what the adapter or its provider throws: `invalid_config`, `provider_unavailable`.
   */
  async add(config: ProviderConfig, { signal }: ProviderContext): Promise<RegisteredProvider> {
    const { id } = config;
    const adapter = this.#adapters.get(config.adapter);
    if (adapter === undefined)
      throw new RuntimeError("unknown_adapter", `there is no adapter ${quote(config.adapter)} here`);
    if (this.#providers.has(id) || this.#starting.has(id))
      throw new RuntimeError("duplicate_provider", `there is a provider ${quote(id)} already`);
    const provider = adapter.create(config, this.#context);
    this.#starting.add(id);
    try {
      const start = { ms: START_TIMEOUT_MS, what: "starting", signal };
      await this.#within(start, (inner) => provider.start?.({ signal: inner }));
      const capabilities = provider.capabilities();
      const gate = this.#gateOf(id, capabilities.maxConcurrency);
      const registered: RegisteredProvider = { id, config, provider, capabilities, gate };
      this.#providers.set(id, registered);
      return registered;
    } catch (error) {
      await this.#stop(provider);
      throw error;
    } finally {
      this.#starting.delete(id);
    }
  }

  /**
   * The instance of that name, started.
   * @throws RuntimeError `unknown_provider`.
   */
  get(id: string): RegisteredProvider {
    const registered = this.#providers.get(id);
    if (registered === undefined)
      throw new RuntimeError("unknown_provider", `there is no provider ${quote(id)} here`);
    return registered;
  }

  /**
   * Forgets an instance, at once; then waits for its work, which others have aborted, and stops it, for 5 s
   * each. Where the work may go on, `after` resolves once it has ended or has been aborted, and it is waited
   * for first, however long it takes. Its name may be used again meanwhile: work that has not ended holds its
   * place in the name's gate. Never rejects: how a provider stops changes nothing for those that are rid of it.
   */
  async remove(id: string, { after }: { readonly after?: Promise<void> } = {}): Promise<void> {
    const registered = this.#providers.get(id);
    if (registered === undefined) return;
    this.#providers.delete(id);
    const ended = this.#end(registered, after);
    this.#ending.add(ended);
    await ended;
    this.#ending.delete(ended);
  }

  /**
   * Removes all, side by side, and waits for those that are being removed, each `after` included. No `add` may
   * be under way. Never rejects.
   */
  async stop(): Promise<void> {
    for (const id of this.#providers.keys()) void this.remove(id);
    await Promise.all(this.#ending);
  }

  async #end({ provider, gate }: RegisteredProvider, after: Promise<void> | undefined): Promise<void> {
    // Asked for now: what the name's next instance takes is none of this one's work.
    const idle = gate.idle();
    await after;
    await this.#briefly("ending its work", () => idle);
    await this.#stop(provider);
  }

  async #stop(provider: Provider): Promise<void> {
    await this.#briefly("stopping", () => provider.stop?.());
  }

  async #briefly(what: string, work: () => Promise<void> | undefined): Promise<void> {
    try {
      await this.#within({ ms: STOP_TIMEOUT_MS, what }, work);
    } catch {
      // It is over for us either way, and nothing of ours is left in it.
    }
  }

  /** Waits for `work`, which may ignore the signal that it is given, until its time is up or `signal` fires. */
  async #within(
    limit: { readonly ms: number; readonly what: string; readonly signal?: AbortSignal },
    work: (signal: AbortSignal) => Promise<void> | undefined,
  ): Promise<void> {
    const { ms, what, signal } = limit;
    if (signal?.aborted === true) throw new RuntimeError("cancelled", `${what}: cancelled`);
    const inner = new AbortController();
    const { promise, reject } = Promise.withResolvers<never>();
    const giveUp = (error: RuntimeError): void => {
      inner.abort(error);
      reject(error);
    };
    const aborted = (): void => giveUp(new RuntimeError("cancelled", `${what}: cancelled`));
    const late = (): void => giveUp(new RuntimeError("provider_unavailable", `${what}: over ${ms} ms`));
    const timer = this.#clock.setTimer(late, ms);
    signal?.addEventListener("abort", aborted);
    try {
      await Promise.race([work(inner.signal), promise]);
    } finally {
      timer.cancel();
      signal?.removeEventListener("abort", aborted);
    }
  }

  #gateOf(id: string, limit: number): CapacityGate {
    for (const [name, gate] of this.#gates)
      if (gate.inFlight === 0 && !this.#providers.has(name)) this.#gates.delete(name);
    let gate = this.#gates.get(id);
    if (gate === undefined) {
      gate = new CapacityGate(limit);
      this.#gates.set(id, gate);
    } else gate.setLimit(limit);
    return gate;
  }
}

/** A name from elsewhere, fit for one line. */
function quote(name: string): string {
  return JSON.stringify(name.slice(0, 100));
}
