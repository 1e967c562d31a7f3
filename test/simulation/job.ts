import type { AdmissionRequest, Ticket } from "../../packages/edge-core/src/admission.ts";
import type { Lease, Resource } from "../../packages/edge-core/src/resource.ts";

/**
 * Where a request is. `asking`: the pool has it. `running`: sent. `leaving`: withdrawn while it ran, to be
 * confirmed. `lingering`: not confirmed in time, its place quarantined. `over`: settled, whatever comes late.
 */
export type Stage = "asking" | "running" | "leaving" | "lingering" | "over";

/** One submission, as the dispatcher goes about it. */
export interface Job {
  readonly name: number;
  readonly request: Omit<AdmissionRequest, "preferred">;
  readonly abort: AbortController;
  readonly ticket: Ticket;
  stage: Stage;
  /** Of the newest grant. */
  lease: Lease | undefined;
  resource: Resource | undefined;
  /** How it ended, once it has. */
  outcome: string | undefined;
  attempts: number;
}

/** Whether `a` is to be served before `b`. */
export function isEarlier(a: Job, b: Job): boolean {
  if (a.request.priority !== b.request.priority) return a.request.priority > b.request.priority;
  return a.ticket.arrival < b.ticket.arrival;
}
