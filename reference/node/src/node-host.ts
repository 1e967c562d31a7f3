import { openAiCompat } from "@iop/adapter-openai-compat";
import { type NodeListeners, NodeError, createNode } from "@iop/node-core";
import { ExitCode, type HostContext, type Log, printReadyLine } from "@iop/reference-host";
import { tcp } from "@iop/wire/tcp";
import { tls } from "@iop/wire/tls";
import type { NodeConfig } from "./node-config.ts";

/** Runs a Node until `signal` fires, or until it cannot or may not go on. */
export async function runNode(config: NodeConfig, { log, signal }: HostContext): Promise<ExitCode> {
  const nodeLog = log.child({ node: config.name });
  const { name: edgeName, tls: trust, ...address } = config.edge;
  try {
    const node = createNode({
      transport: trust === undefined ? tcp(address) : tls({ ...address, ...trust }),
      name: config.name,
      token: config.token,
      ...(edgeName === undefined ? {} : { edgeName }),
      adapters: [openAiCompat()],
      allow: config.allow,
      env: (name) => process.env[name],
      reconnect: config.reconnect,
      drainTimeoutMs: config.drainTimeoutMs,
      on: listeners(config.name, nodeLog),
    });
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

function listeners(name: string, log: Log): NodeListeners {
  let hasBeenReady = false;
  return {
    ready: ({ edge, remote, providers }) => {
      log.info({ edge, remote, providers: providers.length }, "ready");
      if (!hasBeenReady) printReadyLine({ node: name });
      hasBeenReady = true;
    },
    disconnected: ({ reason }) => log.warn({ reason }, "disconnected"),
    edgeDraining: ({ reason }) => log.info({ reason }, "the Edge is draining"),
    retry: ({ attempt, delayMs, reason }) =>
      log.warn({ attempt, delay_ms: delayMs, reason }, "will dial again"),
    provider: ({ id, health, reason, maxConcurrency }) => {
      const fields = { provider: id, health, capacity: maxConcurrency };
      if (health === "ok") log.info(fields, "provider available");
      else log.warn({ ...fields, reason }, `provider ${health}`);
    },
  };
}
