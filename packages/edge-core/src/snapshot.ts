/** What an Edge knows of itself at one moment; the admin API's `GET /api/snapshot`, field for field. Holds no content and no secret. */
export interface EdgeSnapshot {
  readonly edge: {
    readonly name: string;
    readonly mode: "legacy" | "managed";
    readonly uptime_sec: number;
    /** Counts the configurations that have been in force, from 1. */
    readonly config_revision: number;
  };
  readonly nodes: readonly NodeSnapshot[];
  readonly models: readonly ModelSnapshot[];
  /** Open streams over all connections. */
  readonly streams: number;
  readonly totals: TotalsSnapshot;
}

/** What has been counted since the Edge's start; never decreases. */
export interface TotalsSnapshot {
  /** Bytes of bodies that were carried to providers and to callers. */
  readonly relayed_bytes: { readonly request: number; readonly response: number };
  /** Wire messages of a kind that this version does not know, ignored. */
  readonly unknown_messages: number;
  /** Wire messages for streams that were over, ignored. */
  readonly late_messages: number;
}

/** A configured node; never missing, connected or not (spec rule 4). One that has been removed is there while it has work. */
export interface NodeSnapshot {
  readonly name: string;
  readonly connected: boolean;
  /** The newest configuration that it runs; below the Edge's while it has not answered to a change. Only while connected. */
  readonly config_revision?: number;
  /** ISO 8601; only while connected. */
  readonly ready_since?: string;
  /** Of the last answered heartbeat, in milliseconds; only while connected. */
  readonly round_trip_ms?: number;
  readonly providers: readonly ProviderSnapshot[];
}

export interface ProviderSnapshot {
  readonly id: string;
  readonly adapter: string;
  readonly status: "available" | "unavailable";
  readonly health: "ok" | "degraded" | "offline";
  /** Why it is not ok, for people. */
  readonly reason?: string;
  /** `long_*`: of the capacity, what requests with a long input may use; 0 where no input counts as long. */
  readonly capacity: {
    readonly configured: number;
    readonly effective: number;
    readonly long_configured: number;
    readonly long_effective: number;
  };
  /** Disjoint: their sum is what is in flight. */
  readonly in_flight: { readonly normal: number; readonly long: number };
  /** Its Node has refused work lately: it counts as full for a short while. */
  readonly saturated?: boolean;
  readonly quarantined: number;
}

export interface ModelSnapshot {
  readonly key: string;
  /** Requests that wait for a provider of it. */
  readonly waiting: number;
  readonly candidates: number;
  readonly live: number;
}
