import { dirname } from "node:path";
import {
  type ConfigReport,
  type LoadedConfig,
  isLoopbackHost,
  loadConfigFile,
  readAuthorityFile,
} from "@iop/reference-host";
import { z } from "zod";
import { type NodeFile, nodeSchema, unsupportedNodeKeys } from "./node-schema.ts";

/** What the Node is made from: node.yaml in the units of the code, its token looked up. */
export interface NodeConfig {
  readonly name: string;
  readonly edge: {
    readonly host: string;
    readonly port: number;
    readonly name?: string;
    /** Without: plain TCP. */
    readonly tls?: {
      /** Certificates of the trusted authorities, PEM. */
      readonly ca: string;
      readonly serverName?: string;
    };
  };
  readonly token: string;
  readonly reconnect: { readonly maxAttempts: number; readonly intervalMs: number };
  /** Where its metrics are served; undefined: nowhere. */
  readonly metrics: { readonly host: string; readonly port: number } | undefined;
  readonly drainTimeoutMs: number;
  readonly allow: { readonly endpoints: readonly string[]; readonly env: readonly string[] };
}

type Env = Readonly<Record<string, string | undefined>>;

/**
 * Reads node.yaml.
 * @throws ConfigError with every problem at once.
 */
export function loadNodeConfig(
  file: string,
  { checkOnly, env }: { readonly checkOnly: boolean; readonly env: Env },
): LoadedConfig<NodeConfig> {
  let ca: string | undefined;
  const { config, warnings } = loadConfigFile(file, {
    schema: nodeSchema,
    check: (data, report) => {
      checkNode(data, report, checkOnly, env);
      ca = readAuthority(data, report, dirname(file));
    },
    unsupported: unsupportedNodeKeys,
  });
  return { config: toNodeConfig(config, ca, env), warnings };
}

/** Spans of keys; a malformed one becomes absent here, and the schema reports it. */
const loose = z.looseObject({
  node: z.looseObject({
    edge: z
      .looseObject({
        host: z.string().optional().catch(undefined),
        insecure: z.boolean().optional().catch(undefined),
        tls: z
          .looseObject({ ca: z.string().optional().catch(undefined) })
          .optional()
          .catch(undefined),
      })
      .optional()
      .catch(undefined),
    token: z
      .looseObject({ env: z.string().optional().catch(undefined) })
      .optional()
      .catch(undefined),
    reconnect: z
      .looseObject({
        max_attempts: z.number().optional().catch(undefined),
        interval_sec: z.number().optional().catch(undefined),
      })
      .optional()
      .catch(undefined),
  }),
});

function checkNode(data: unknown, report: ConfigReport, checkOnly: boolean, env: Env): void {
  const node = loose.safeParse(data).data?.node;
  if (node === undefined) return;
  const { edge, token, reconnect } = node;
  if (edge?.tls !== undefined) {
    if (edge.insecure === true)
      report.warning(["node", "edge", "insecure"], "does nothing beside node.edge.tls");
  } else if (edge?.host !== undefined && !isLoopbackHost(edge.host) && edge.insecure !== true) {
    report.error(
      ["node", "edge", "host"],
      "is another machine, and the token and prompts would cross the network in plain text; configure tls, or say insecure: true beside it",
    );
  }
  if (token?.env !== undefined && (env[token.env] ?? "") === "") {
    report[checkOnly ? "warning" : "error"](
      ["node", "token", "env"],
      `the environment variable ${token.env} is not set`,
    );
  }
  if (reconnect?.max_attempts === 0 && reconnect.interval_sec === 0)
    report.error(
      ["node", "reconnect", "interval_sec"],
      "must be above 0 where max_attempts is 0 (unlimited)",
    );
}

function readAuthority(data: unknown, report: ConfigReport, folder: string): string | undefined {
  const name = loose.safeParse(data).data?.node.edge?.tls?.ca;
  return name === undefined
    ? undefined
    : readAuthorityFile(name, { folder, path: ["node", "edge", "tls"], report });
}

function toNodeConfig({ node }: NodeFile, ca: string | undefined, env: Env): NodeConfig {
  const serverName = node.edge.tls?.server_name;
  return {
    name: node.name,
    edge: {
      host: node.edge.host,
      port: node.edge.port,
      ...(node.edge.name === undefined ? {} : { name: node.edge.name }),
      ...(ca === undefined ? {} : { tls: { ca, ...(serverName === undefined ? {} : { serverName }) } }),
    },
    // Unset only where the file is merely checked, and then nobody reads it.
    token: env[node.token.env] ?? "",
    reconnect: {
      maxAttempts: node.reconnect.max_attempts,
      intervalMs: Math.round(node.reconnect.interval_sec * 1000),
    },
    metrics: node.metrics.enabled ? { host: node.metrics.host, port: node.metrics.port } : undefined,
    drainTimeoutMs: Math.round(node.drain_timeout_sec * 1000),
    allow: node.allow,
  };
}
