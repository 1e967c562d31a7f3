export type { EdgeErrorCode } from "./edge-error.ts";
export { EdgeError } from "./edge-error.ts";
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
export type { EdgeSnapshot, ModelSnapshot, NodeSnapshot, ProviderSnapshot } from "./snapshot.ts";
