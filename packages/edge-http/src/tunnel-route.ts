import { EdgeError, type EdgeService, type ProviderTunnel } from "@iop/edge-core";
import { mayUse } from "./api-keys.ts";
import type { BufferedShare } from "./buffered-bytes.ts";
import type { Exchange } from "./exchange.ts";
import { modelNotFound } from "./http-surface-error.ts";
import { JsonBody } from "./json-body.ts";
import { type BodyLimits, checkJsonHead, readJsonBody } from "./json-request.ts";
import { providerHeaders } from "./provider-headers.ts";
import { sessionName } from "./session-name.ts";
import { relayTunnel } from "./tunnel-relay.ts";
import { fromSubmission } from "./upstream-error.ts";

/** Of a request's body; what English text and code come to on average. Good enough to tell long from short. */
const BYTES_PER_TOKEN = 4;

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
    // The bytes count until the provider answers: before that they wait, or are on their way to it.
    share.release();
    if (tunnel !== undefined) await relayTunnel(exchange, tunnel);
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
    exchange.submit();
    try {
      const tunnel = await edge.submitProviderTunnel({
        requestId: exchange.id,
        model,
        operation,
        method: "POST",
        headers: providerHeaders(exchange.req),
        buildBody: (target) => body.withModel(target),
        ...(exchange.key === undefined ? {} : { principal: exchange.key.name }),
        priority: exchange.key?.priority ?? 0,
        inputTokens: Math.ceil(exchange.receivedBytes / BYTES_PER_TOKEN),
        session: sessionName(exchange.req.headers, body.promptCacheKey),
        signal: exchange.signal,
      });
      exchange.attach(tunnel);
      return tunnel;
    } catch (error) {
      if (EdgeError.is(error)) exchange.queue = error.queue;
      throw fromSubmission(error, model);
    } finally {
      exchange.settled();
    }
  } finally {
    body.drop();
  }
}
