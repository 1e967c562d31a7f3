import type { EdgeService } from "@iop/edge-core";
import type { ApiKey } from "./api-keys.ts";
import type { RebindingGuardOptions } from "./rebinding-guard.ts";
import type { RequestInfo } from "./request-info.ts";

export interface HttpSurfaceOptions extends RebindingGuardOptions {
  /** Serves the requests. */
  readonly edge: EdgeService;
  /** Who may ask, and for which models. Empty: everybody for all, which is for loopback only. */
  readonly apiKeys: readonly ApiKey[];
  /** Largest request body in bytes, then 413. Default 32 MiB. */
  readonly bodyBytes?: number | undefined;
  /** Bytes of request bodies that wait for their provider's answer, all together, then 429. Default 512 MiB. */
  readonly bufferedRequestBytes?: number | undefined;
  /** A client that leaves bytes waiting for so long without taking any is cut off. Default 30,000. */
  readonly slowConsumerMs?: number | undefined;
  /** Called exactly once for each request, when it is over; must not throw. */
  readonly onRequest?: ((info: RequestInfo) => void) | undefined;
}
