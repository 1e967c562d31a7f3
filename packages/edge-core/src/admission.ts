import type { Candidate } from "./catalog.ts";
import type { Lease, Resource } from "./resource.ts";

/** How long requests may wait, and how many. */
export interface QueueSettings {
  /** From submission until a provider is found, in milliseconds. */
  readonly timeoutMs: number;
  /** Requests that wait at once, over all models; beyond it only those that come back are let in. */
  readonly maxWaiting: number;
  /** How long a request waits while no provider of its model is live, in milliseconds; 0: not at all. */
  readonly offlineGraceMs: number;
}

/** What a request asks the pool for. */
export interface AdmissionRequest {
  readonly model: string;
  readonly operation: string;
  /** Higher goes first. */
  readonly priority: number;
  /** Tokens of the input, as far as known: whether it is long is the provider's to say. */
  readonly inputTokens: number;
  /** Resource that is taken if it has room. */
  readonly preferred: Resource | undefined;
  readonly signal: AbortSignal | undefined;
}

/** A place on a provider, and what to do with it. */
export interface Grant {
  readonly candidate: Candidate;
  /** Path of the operation. */
  readonly path: string;
  readonly lease: Lease;
  /** Requests of its priority or a higher one that waited for the same providers when it began to, and itself; 0 where it did not. */
  readonly position: number;
  /** Milliseconds. */
  readonly waitedMs: number;
}

/** A place in the order of arrival: kept by a request that was refused and comes back. */
export interface Ticket {
  readonly arrival: number;
  readonly deadlineAt: number;
  readonly startedAt: number;
  position: number;
  /** It has waited or been granted before. */
  admitted: boolean;
}
