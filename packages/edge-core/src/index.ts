// For hosts: make an Edge.
export type { Edge } from "./edge.ts";
export { createEdge } from "./edge.ts";
export type { ReloadResult } from "./configuration.ts";
export type { CandidateOptions, EdgeOptions, ModelOptions, ReloadOptions } from "./edge-options.ts";
export type { NodeRecord, ProviderRecord } from "./node-record.ts";
export type { AuthScheme, ProtocolProfile } from "./protocol-profile.ts";
export { BUILT_IN_PROFILES } from "./protocol-profile.ts";
export type { EdgeErrorCode, QueueWait } from "./edge-error.ts";
export { EdgeError } from "./edge-error.ts";

// For surfaces over it.
export type {
  EdgeService,
  HeaderList,
  ModelInfo,
  ProviderTunnel,
  RunDispatch,
  TunnelFrame,
  TunnelSubmission,
  Usage,
} from "./edge-service.ts";

// For observers.
export type { EdgeEventMap, EdgeEvents, NodeEvent, RunOutcomeEvent } from "./event-bus.ts";
export type {
  EdgeSnapshot,
  ModelSnapshot,
  NodeSnapshot,
  ProviderSnapshot,
  TotalsSnapshot,
} from "./snapshot.ts";

// For stores of one's own.
export type { NodeStore } from "./node-store.ts";
export { digestToken, memoryNodeStore } from "./node-store.ts";
