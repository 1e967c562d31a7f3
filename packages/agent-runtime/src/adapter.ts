import type { Provider } from "./provider.ts";
import type { RuntimeProfile } from "./runtime-profile.ts";

/** Configuration of one provider instance, as the Edge delivered it. Holds no secret. */
export interface ProviderConfig {
  /** The instance's stable name. */
  readonly id: string;
  /** The adapter's kind. */
  readonly adapter: string;
  readonly endpoint?: string;
  /** Concurrent runs and tunnels; at least 1. */
  readonly capacity: number;
  readonly profile?: RuntimeProfile;
  /** Environment variable of the Node that holds the provider's key (legacy mode). */
  readonly authEnv?: string;
  /** 0: no limit. */
  readonly firstByteTimeoutMs: number;
  /** 0: no limit. */
  readonly idleTimeoutMs: number;
}

/** What a Node offers to the adapters that it hosts. */
export interface AdapterContext {
  /** Reads an environment variable that the Node's owner allows; undefined where unset or not allowed. */
  readonly env: (name: string) => string | undefined;
}

/** Makes providers of one kind. Plug it into `createNode({ adapters: [...] })`. */
export interface Adapter {
  /** Named by `adapter:` in the Edge's configuration. */
  readonly kind: string;
  /**
   * Checks the configuration and makes the instance, without I/O.
   * @throws RuntimeError `invalid_config`, naming the key: fatal. `provider_unavailable`, with the reason,
   * where what the configuration refers to is not to be had here, such as an environment variable: nothing
   * but this provider is affected.
   */
  create(config: ProviderConfig, context: AdapterContext): Provider;
}

/** Declares an adapter; types its parts. */
export function defineAdapter(adapter: Adapter): Adapter {
  return adapter;
}
