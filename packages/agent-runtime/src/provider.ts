import type { ExecutionSpec } from "./execution-spec.ts";
import type { HeaderList } from "./header-list.ts";
import type { RuntimeEvent } from "./runtime-event.ts";
import type { Usage } from "./usage.ts";

/** What one provider instance can do. Must be true for the instance's whole life. */
export interface ProviderCapabilities {
  /** Runs and tunnels that the provider serves at once, together; at least 1. */
  readonly maxConcurrency: number;
  /** Operations that `tunnel` accepts; empty where there is no `tunnel`. */
  readonly operations: readonly string[];
}

/** `ok`: serves. `degraded`: serves, not at its best. `offline`: does not serve. */
export interface ProviderHealth {
  readonly health: "ok" | "degraded" | "offline";
  /** Why it is not `ok`, for people. Never a credential, a prompt or a completion. */
  readonly reason?: string;
}

/** Given to each call into a provider. */
export interface ProviderContext {
  /**
   * Fires when the work is to stop. The provider then stops what it started (closes the HTTP request,
   * signals the process group) within 2 s, and only then settles.
   */
  readonly signal: AbortSignal;
}

/** One raw HTTP exchange, end-to-end headers only, body complete. */
export interface TunnelRequest {
  /** Unique within the Edge; for logs. */
  readonly requestId: string;
  /** Name of the operation; the profile has its path. Empty: use `path` (mixed versions). */
  readonly operation: string;
  readonly method: string;
  /** Used only where `operation` is empty, and only if the profile lists this very path. */
  readonly path: string;
  readonly headers: HeaderList;
  /** Chunks of the whole body, in order; empty for none. */
  readonly body: readonly Uint8Array[];
  /** Model name that the provider serves; already in the body. */
  readonly target: string;
  /** Longest wait for the first byte of the response's body, from the start of sending; 0: the provider's setting. */
  readonly firstByteTimeoutMs: number;
  /** Longest silence between two chunks; 0: the provider's setting. */
  readonly idleTimeoutMs: number;
}

/** The provider's answer, byte for byte, status and end-to-end headers as it sent them. */
export interface TunnelResponse {
  readonly status: number;
  readonly headers: HeaderList;
  /**
   * Body bytes as they arrive, still encoded as `content-encoding` says. Pulling is what reads the
   * provider: while nobody pulls, reading stops once 64 KiB has been read ahead. Ends cleanly only where
   * the provider ended cleanly; a cut throws `provider_stream_cut`. Returning early closes the provider's
   * socket. One reader, one pull at a time; chunks need not be those that the provider sent.
   */
  readonly body: AsyncIterable<Uint8Array>;
  /** The latest usage that passed by, observed without touching the body. */
  usage(): Usage | undefined;
}

/**
 * One configured model server or agent, made by an adapter. It has `execute`, `tunnel` or both.
 *
 * Failures are thrown as `RuntimeError` with a code. A provider never logs prompts, completions or
 * credentials.
 */
export interface Provider {
  capabilities(): ProviderCapabilities;
  /** Called once before any work. Throws only where the configuration is wrong (fatal), not where a server is down. */
  start?(context: ProviderContext): Promise<void>;
  /** Called once, after all work has ended; releases everything. */
  stop?(): Promise<void>;
  /**
   * Asks the server whether it serves. The signal is the question's deadline: when it fires, the answer is what
   * is known by then, `degraded` where the server has been reached.
   */
  health?(context: ProviderContext): Promise<ProviderHealth>;
  /** Runs one turn: `start` first, then deltas, then exactly one of `complete`, `error`, `cancelled`. */
  execute?(spec: ExecutionSpec, context: ProviderContext): AsyncIterable<RuntimeEvent>;
  /** Resolves when the provider's response head has arrived. */
  tunnel?(request: TunnelRequest, context: ProviderContext): Promise<TunnelResponse>;
}
