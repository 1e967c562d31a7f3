import { type Edge, EdgeError, createEdge } from "@iop/edge-core";
import { HttpAccess, type RequestInfo, createHttpServer } from "@iop/edge-http";
import {
  ExitCode,
  type Log,
  type ReloadableContext,
  listenHttp,
  printReadyLine,
  whenAborted,
} from "@iop/reference-host";
import type { Transport } from "@iop/wire";
import { tcp } from "@iop/wire/tcp";
import { type HandshakeFailure, tls } from "@iop/wire/tls";
import { createAdminServer } from "./admin-server.ts";
import type { EdgeConfig } from "./edge-config.ts";
import { createEdgeMetrics } from "./edge-metrics.ts";
import { accessRules, reloadEdge } from "./edge-reload.ts";

/** Runs an Edge until `signal` fires, then drains it. */
export async function runEdge(
  config: EdgeConfig,
  { log, signal, onReload }: ReloadableContext<EdgeConfig>,
): Promise<ExitCode> {
  const { listen } = config;
  await using stack = new AsyncDisposableStack();
  let edge: Edge;
  try {
    edge = makeEdge(config, log);
  } catch (error) {
    if (!EdgeError.is(error)) throw error;
    log.fatal({ err: error }, error.message);
    return ExitCode.usage;
  }
  logNodes(edge, log);
  const metrics = createEdgeMetrics(edge);
  const nodes = await edge.listen({ signal });
  // A second close after the drain is harmless; this one is for a start that fails halfway.
  stack.defer(() => edge.close({ drainTimeoutMs: 0 }));

  const access = new HttpAccess(accessRules(config, listen.http.host));
  const surface = createHttpServer({
    edge,
    access,
    bodyBytes: config.limits.bodyBytes,
    bufferedRequestBytes: config.limits.bufferedRequestBytes,
    attributionHeaders: config.attributionHeaders,
    onRequest: (info) => {
      logRequest(info, log);
      metrics.request(info);
    },
  });
  const http = await listenHttp(surface, listen.http, "edge.listen.http");
  stack.defer(() => http.close());
  const watching = new AbortController();
  const admin = await listenHttp(
    createAdminServer({
      edge,
      keySha256: listen.admin.keySha256,
      host: listen.admin.host,
      metrics: () => metrics.text(),
      draining: () => signal.aborted,
      signal: watching.signal,
    }),
    listen.admin,
    "edge.listen.admin",
  );
  stack.defer(() => {
    watching.abort();
    return admin.close();
  });

  onReload((next) => reloadEdge({ config, edge, access, log }, next));
  printReadyLine({ http: http.url, nodes: nodes.address, admin: admin.url });
  log.info({ http: http.url, nodes: nodes.address, admin: admin.url }, "ready");
  await whenAborted(signal);
  http.drain();
  await edge.close();
  return ExitCode.ok;
}

/** @throws EdgeError `invalid_config` for what only the library knows to be wrong. */
function makeEdge(config: EdgeConfig, log: Log): Edge {
  return createEdge({
    name: config.name,
    mode: config.mode,
    transport: nodeTransport(config, log),
    nodes: config.nodes,
    profiles: config.profiles,
    models: config.models,
    heartbeat: config.heartbeat,
    limits: config.limits,
    queue: config.queue,
    drainTimeoutMs: config.drainTimeoutMs,
  });
}

function nodeTransport({ listen, tls: identity }: EdgeConfig, log: Log): Transport {
  if (identity === undefined) return tcp(listen.nodes);
  const onError = ({ remote, reason }: HandshakeFailure): void =>
    log.warn({ remote, reason }, "a TLS handshake on the Node port failed");
  return tls({ ...listen.nodes, ...identity, onError });
}

function logNodes(edge: Edge, log: Log): void {
  edge.events.on("node", ({ node, type, code, reason }) => {
    const fields = {
      node,
      ...(code === undefined ? {} : { code }),
      ...(reason === undefined ? {} : { reason }),
    };
    if (type === "connected" || type === "reconfigured") log.info(fields, `node ${type}`);
    else log.warn(fields, `node ${type}`);
  });
}

function logRequest(info: RequestInfo, log: Log): void {
  const { requestId, operation, model, key, status, queuedMs, durationMs, outcome, code, dispatch, usage } =
    info;
  log.info(
    {
      request_id: requestId,
      operation,
      model,
      caller: key,
      status,
      queued_ms: queuedMs === undefined ? undefined : Math.round(queuedMs),
      duration_ms: Math.round(durationMs),
      outcome,
      code,
      node: dispatch?.nodeId,
      provider: dispatch?.providerId,
      target: dispatch?.target,
      input_tokens: usage?.inputTokens,
      output_tokens: usage?.outputTokens,
      reasoning_tokens: usage?.reasoningTokens,
      cached_input_tokens: usage?.cachedInputTokens,
    },
    "request",
  );
}
