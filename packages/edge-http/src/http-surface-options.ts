import type { EdgeService } from "@iop/edge-core";
import type { AccessRules, HttpAccess } from "./http-access.ts";
import type { RequestInfo } from "./request-info.ts";

export interface HttpSurfaceOptions {
  /** Serves the requests. */
  readonly edge: EdgeService;
  /** Who may use it: rules that stay, or an `HttpAccess` whose rules may be replaced. */
  readonly access: AccessRules | HttpAccess;
  /** Largest request body in bytes, then 413. Default 32 MiB. */
  readonly bodyBytes?: number | undefined;
  /** Bytes of request bodies that wait for their provider's answer, all together, then 429. Default 512 MiB. */
  readonly bufferedRequestBytes?: number | undefined;
  /** Whether responses say who served them: `x-iop-node`, `x-iop-provider`, `x-iop-target`. Default true. */
  readonly attributionHeaders?: boolean | undefined;
  /** A client that leaves bytes waiting for so long without taking any is cut off. Default 30,000. */
  readonly slowConsumerMs?: number | undefined;
  /** Called exactly once for each request, when it is over; must not throw. */
  readonly onRequest?: ((info: RequestInfo) => void) | undefined;
}
