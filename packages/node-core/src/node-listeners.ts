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
  /** A provider is known for the first time, or has changed its health. */
  readonly provider?: (status: NodeProviderStatus) => void;
}
