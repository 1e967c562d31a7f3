import type { EdgeService, ProviderTunnel } from "@iop/edge-core";
import { mayUse } from "./api-keys.ts";
import type { BufferedShare } from "./buffered-bytes.ts";
import type { Exchange } from "./exchange.ts";
import { modelNotFound } from "./http-surface-error.ts";
import { JsonBody } from "./json-body.ts";
import { type BodyLimits, checkJsonHead, readJsonBody } from "./json-request.ts";
import { providerHeaders } from "./provider-headers.ts";
import { relayTunnel } from "./tunnel-relay.ts";
import { fromSubmission } from "./upstream-error.ts";

export interface TunnelRouteSettings {
  readonly edge: EdgeService;
  readonly limits: BodyLimits;
}

/**
 * Serves a request by a raw exchange with a provider of the model that its body names.
 * @throws HttpSurfaceError where the answer is an error of ours
 */
export async function serveTunnel(
  exchange: Exchange,
  operation: string,
  settings: TunnelRouteSettings,
): Promise<void> {
  checkJsonHead(exchange.req, settings.limits);
  const share = settings.limits.buffered.share();
  try {
    const tunnel = await openTunnel(exchange, operation, settings, share);
    // The bytes count until the provider answers: before that they may still be on their way to it.
    if (tunnel !== undefined) await relayTunnel(exchange, tunnel, share.release);
  } finally {
    share.release();
  }
}

/** Reads the body and submits it; undefined where the client has left. Keeps nothing of the body. */
async function openTunnel(
  exchange: Exchange,
  operation: string,
  { edge, limits }: TunnelRouteSettings,
  share: BufferedShare,
): Promise<ProviderTunnel | undefined> {
  const body = new JsonBody();
  try {
    const model = await readJsonBody(exchange, body, share, limits);
    if (model === undefined) return undefined;
    exchange.model = model;
    if (!mayUse(exchange.key, model)) throw modelNotFound(model);
    await exchange.turn();
    if (exchange.over) return undefined;
    try {
      return await edge.submitProviderTunnel({
        requestId: exchange.id,
        model,
        operation,
        method: "POST",
        headers: providerHeaders(exchange.req),
        buildBody: (target) => body.withModel(target),
        ...(exchange.key === undefined ? {} : { principal: exchange.key.name }),
        signal: exchange.signal,
      });
    } catch (error) {
      throw fromSubmission(error, model);
    }
  } finally {
    body.drop();
  }
}
