import { openAiCompat } from "@iop/adapter-openai-compat";
import { type Node, type NodeListeners, NodeError, createNode } from "@iop/node-core";
import {
  ExitCode,
  type HostContext,
  type HttpListener,
  type Log,
  listenHttp,
  printReadyLine,
} from "@iop/reference-host";
import { tcp } from "@iop/wire/tcp";
import { tls } from "@iop/wire/tls";
import { createMetricsServer } from "./metrics-server.ts";
import type { NodeConfig } from "./node-config.ts";
import { type NodeMetrics, createNodeMetrics } from "./node-metrics.ts";

/** Runs a Node until `signal` fires, or until it cannot or may not go on. */
export async function runNode(config: NodeConfig, { log, signal }: HostContext): Promise<ExitCode> {
  const nodeLog = log.child({ node: config.name });
  const { name: edgeName, tls: trust, ...address } = config.edge;
  await using stack = new AsyncDisposableStack();
  const where: Record<string, string> = { node: config.name };
  let node: Node | undefined;
  // Nothing is measured that nobody can read.
  const metrics =
    config.metrics &&
    createNodeMetrics(() => node?.status() ?? { connected: false, providers: [], tunnels: 0 });
  try {
    node = createNode({
      transport: trust === undefined ? tcp(address) : tls({ ...address, ...trust }),
      name: config.name,
      token: config.token,
      ...(edgeName === undefined ? {} : { edgeName }),
      adapters: [openAiCompat()],
      allow: config.allow,
      env: (name) => process.env[name],
      reconnect: config.reconnect,
      drainTimeoutMs: config.drainTimeoutMs,
      on: listeners(where, nodeLog, metrics?.on),
    });
    if (config.metrics !== undefined && metrics !== undefined) {
      const listener = await serveMetrics(config.metrics, node, metrics);
      stack.defer(() => listener.close());
      where["metrics"] = listener.url;
      nodeLog.info({ metrics: listener.url }, "serving metrics");
    }
    nodeLog.info({ edge: address, tls: trust !== undefined }, "dialling");
    await node.run({ signal });
    nodeLog.info("stopped");
    return ExitCode.ok;
  } catch (error) {
    if (!NodeError.is(error)) throw error;
    nodeLog.fatal({ err: error }, error.message);
    return exitCodeOf(error);
  }
}

function exitCodeOf({ code }: NodeError): ExitCode {
  if (code === "exhausted") return ExitCode.exhausted;
  return code === "invalid_options" ? ExitCode.usage : ExitCode.refused;
}

function serveMetrics(
  address: NonNullable<NodeConfig["metrics"]>,
  node: Node,
  metrics: NodeMetrics,
): Promise<HttpListener> {
  const server = createMetricsServer({
    host: address.host,
    connected: () => node.status().connected,
    metrics: () => metrics.text(),
  });
  return listenHttp(server, address, "node.metrics");
}

/** `where` is what the ready line says. */
function listeners(
  where: Readonly<Record<string, string>>,
  log: Log,
  counting: NodeMetrics["on"] | undefined,
): NodeListeners {
  let hasBeenReady = false;
  return {
    ...(counting === undefined ? {} : { tunnel: counting.tunnel }),
    ready: (event) => {
      counting?.ready(event);
      const { edge, remote, providers } = event;
      log.info({ edge, remote, providers: providers.length }, "ready");
      if (!hasBeenReady) printReadyLine(where);
      hasBeenReady = true;
    },
    disconnected: ({ reason }) => log.warn({ reason }, "disconnected"),
    edgeDraining: ({ reason }) => log.info({ reason }, "the Edge is draining"),
    reconfigured: ({ revision, providers }) => {
      const refused = providers.filter(({ accepted }) => !accepted).map(({ id, reason }) => ({ id, reason }));
      const fields = { revision, providers: providers.length };
      if (refused.length === 0) log.info(fields, "reconfigured");
      else log.warn({ ...fields, refused }, "reconfigured, but not all of it");
    },
    retry: (event) => {
      counting?.retry(event);
      const { attempt, delayMs, reason } = event;
      log.warn({ attempt, delay_ms: delayMs, reason }, "will dial again");
    },
    provider: ({ id, health, reason, maxConcurrency }) => {
      const fields = { provider: id, health, capacity: maxConcurrency };
      if (health === "ok") log.info(fields, "provider available");
      else log.warn({ ...fields, reason }, `provider ${health}`);
    },
  };
}
