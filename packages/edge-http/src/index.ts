export type { ApiKey } from "./api-keys.ts";
export { createHttpServer } from "./http-server.ts";
export type { HttpSurface } from "./http-surface.ts";
export { createHttpSurface } from "./http-surface.ts";
export { HttpSurfaceError } from "./http-surface-error.ts";
export type { HttpSurfaceErrorDetails } from "./http-surface-error.ts";
export type { HttpSurfaceOptions } from "./http-surface-options.ts";
export type { RebindingGuardOptions } from "./rebinding-guard.ts";
export type { RequestInfo, RequestOutcome } from "./request-info.ts";
