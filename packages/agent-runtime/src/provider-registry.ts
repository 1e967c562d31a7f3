import type { Adapter, AdapterContext, ProviderConfig } from "./adapter.ts";
import { CapacityGate } from "./capacity-gate.ts";
import type { Provider, ProviderContext } from "./provider.ts";
import { RuntimeError } from "./runtime-error.ts";

/** A provider instance under its stable name, with the one gate that all work of it passes. */
export interface RegisteredProvider {
  readonly id: string;
  readonly config: ProviderConfig;
  readonly provider: Provider;
  /** Its limit is the provider's `maxConcurrency`. */
  readonly gate: CapacityGate;
}

/** A provider that failed to start or to stop. */
export interface ProviderFailure {
  readonly id: string;
  readonly error: RuntimeError;
}

export interface ProviderRegistryOptions {
  /** Kinds that can be created; each kind once. */
  readonly adapters: readonly Adapter[];
  /** Given to each `create`. */
  readonly context: AdapterContext;
}

/** Adapters by kind, and the provider instances made with them by stable name (spec F5). */
export class ProviderRegistry {
  readonly #adapters = new Map<string, Adapter>();
  readonly #context: AdapterContext;
  readonly #providers = new Map<string, RegisteredProvider>();
  readonly #started = new Set<string>();

  /** @throws RuntimeError `invalid_config` where two adapters have the same kind. */
  constructor(options: ProviderRegistryOptions) {
    this.#context = options.context;
    for (const adapter of options.adapters) {
      if (this.#adapters.has(adapter.kind))
        throw new RuntimeError("invalid_config", `adapters: ${quote(adapter.kind)} is there twice`);
      this.#adapters.set(adapter.kind, adapter);
    }
  }

  /**
   * Makes the instance that `config` describes; does not start it.
   * @throws RuntimeError `unknown_adapter`, `duplicate_provider`, and what the adapter refuses with:
   * `invalid_config`, `provider_unavailable`. Nothing is registered then.
   */
  create(config: ProviderConfig): RegisteredProvider {
    const { id } = config;
    if (this.#providers.has(id))
      throw new RuntimeError("duplicate_provider", `there is a provider ${quote(id)} already`);
    const adapter = this.#adapters.get(config.adapter);
    if (adapter === undefined)
      throw new RuntimeError("unknown_adapter", `there is no adapter ${quote(config.adapter)}`);
    const provider = adapter.create(config, this.#context);
    const gate = new CapacityGate(provider.capabilities().maxConcurrency);
    const registered: RegisteredProvider = { id, config, provider, gate };
    this.#providers.set(id, registered);
    return registered;
  }

  /** @throws RuntimeError `unknown_provider`. */
  get(id: string): RegisteredProvider {
    const registered = this.#providers.get(id);
    if (registered === undefined)
      throw new RuntimeError("unknown_provider", `there is no provider ${quote(id)}`);
    return registered;
  }

  /** All instances, in the order of their creation. */
  list(): readonly RegisteredProvider[] {
    return [...this.#providers.values()];
  }

  /**
   * Starts, side by side, every instance that has not been started. Never rejects: those that failed are
   * answered and stay registered, to be reported and stopped; `cancelled` for those that had not finished
   * when the signal fired.
   */
  async start(context: ProviderContext): Promise<readonly ProviderFailure[]> {
    const waiting = this.list().filter(({ id }) => !this.#started.has(id));
    for (const { id } of waiting) this.#started.add(id);
    return collect(waiting, ({ provider }) => untilAborted(context.signal, () => provider.start?.(context)));
  }

  /**
   * Stops, side by side, every instance, started or not, and forgets it. All work must have ended. Never
   * rejects: those that failed to stop are answered, and those that had not finished when the signal fired.
   */
  async stop(context: ProviderContext): Promise<readonly ProviderFailure[]> {
    const all = this.list();
    this.#providers.clear();
    this.#started.clear();
    return collect(all, ({ provider }) => untilAborted(context.signal, () => provider.stop?.()));
  }
}

async function collect(
  providers: readonly RegisteredProvider[],
  act: (registered: RegisteredProvider) => Promise<void>,
): Promise<readonly ProviderFailure[]> {
  const outcomes = await Promise.all(
    providers.map(async (registered): Promise<ProviderFailure | undefined> => {
      try {
        await act(registered);
        return undefined;
      } catch (error) {
        return { id: registered.id, error: RuntimeError.from(error) };
      }
    }),
  );
  return outcomes.filter((failure) => failure !== undefined);
}

/** What `work` settles with, or `cancelled` as soon as the signal fires: a provider may ignore its signal. */
async function untilAborted(signal: AbortSignal, work: () => Promise<void> | undefined): Promise<void> {
  const { promise, reject } = Promise.withResolvers<never>();
  const aborted = (): void => reject(new RuntimeError("cancelled", "cancelled before it had finished"));
  signal.addEventListener("abort", aborted);
  if (signal.aborted) aborted();
  try {
    await Promise.race([work(), promise]);
  } finally {
    signal.removeEventListener("abort", aborted);
  }
}

/** A name from elsewhere, fit for one line. */
function quote(name: string): string {
  return JSON.stringify(name.slice(0, 100));
}
