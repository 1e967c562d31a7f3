/** One provider as this Node sees it. */
export interface NodeProviderStatus {
  /** The adapter instance's name. */
  readonly id: string;
  /** `ok`: serves. `degraded`: serves, not at its best. `offline`: takes no work. */
  readonly health: "ok" | "degraded" | "offline";
  /** Why it is not `ok`; empty where it is. */
  readonly reason: string;
  /** Tunnels that the Node's own gate admits at once; 0 where the provider is refused. */
  readonly maxConcurrency: number;
  readonly inFlight: number;
}

/** A tunnel that is over, its terminal sent. Holds nothing of its content. */
export interface NodeTunnelOutcome {
  /** As the Edge's events name it. */
  readonly requestId: string;
  /** The provider that the Edge named, whether this Node has it or not. */
  readonly provider: string;
  readonly operation: string;
  readonly outcome: "completed" | "error" | "cancelled";
  /** Of an `error`: the code that the Edge was sent. */
  readonly code?: string;
  /** From the request until the provider's work had stopped. */
  readonly durationMs: number;
}

/** What came of one provider of a changed configuration. */
export interface ProviderOutcome {
  readonly id: string;
  /** Whether it runs with that configuration; its health is another matter. */
  readonly accepted: boolean;
  /** Why not; empty where it does. */
  readonly reason: string;
}

/**
 * What a host may be told, for its logs. Calls come in the turn in which something happened and must not
 * throw. Nothing in them is a token, a prompt or a completion.
 */
export interface NodeListeners {
  /** The Edge has taken this Node into service. */
  readonly ready?: (event: {
    readonly node: string;
    readonly edge: string;
    readonly remote: string;
    readonly providers: readonly NodeProviderStatus[];
  }) => void;
  /** A session that was ready is over; a retry or the end of `run` follows. */
  readonly disconnected?: (event: { readonly reason: string }) => void;
  /** The Edge sends nothing new and will close once running work has ended. */
  readonly edgeDraining?: (event: { readonly reason: string }) => void;
  /** An attempt follows after `delayMs`. `attempt` counts those in a row, from 1. */
  readonly retry?: (event: {
    readonly attempt: number;
    readonly delayMs: number;
    readonly reason: string;
  }) => void;
  /** The Edge has changed the configuration, and this is what came of it. */
  readonly reconfigured?: (event: {
    readonly revision: number;
    readonly providers: readonly ProviderOutcome[];
  }) => void;
  /** A provider is known for the first time, or has changed its health. */
  readonly provider?: (status: NodeProviderStatus) => void;
  /** A tunnel is over; once each, refusals after a drain has begun excepted. */
  readonly tunnel?: (outcome: NodeTunnelOutcome) => void;
}
