import { dirname } from "node:path";
import type { ModelOptions, NodeRecord, ProtocolProfile } from "@iop/edge-core";
import { type IdentityPem, type LoadedConfig, digestOf, loadConfigFile } from "@iop/reference-host";
import { type EdgeReferences, checkEdgeReferences } from "./edge-references.ts";
import { type EdgeFile, edgeSchema, unsupportedEdgeKeys } from "./edge-schema.ts";
import { builtInProfiles, resolveProfile } from "./protocol-profile.ts";

interface Address {
  readonly host: string;
  readonly port: number;
}

/** What the Edge's process is made from: edge.yaml in the units of the code, secrets as digests. */
export interface EdgeConfig {
  readonly name: string;
  readonly mode: "legacy";
  readonly listen: {
    readonly nodes: Address;
    readonly http: Address & {
      readonly allowedHosts: readonly string[];
      readonly allowedOrigins: readonly string[];
    };
    readonly admin: Address & { readonly keySha256?: string };
  };
  readonly heartbeat: { readonly intervalMs: number; readonly waitMs: number };
  readonly limits: {
    readonly bodyBytes: number;
    readonly bufferedRequestBytes: number;
    readonly streamWindowBytes: number;
    readonly connectionWindowBytes: number;
  };
  readonly queue: {
    readonly timeoutMs: number;
    readonly maxWaiting: number;
    readonly offlineGraceMs: number;
  };
  readonly attributionHeaders: boolean;
  readonly drainTimeoutMs: number;
  /** Of the Node port. Without: plain TCP. */
  readonly tls?: IdentityPem;
  readonly apiKeys: ReadonlyArray<{
    readonly name: string;
    readonly sha256: string;
    readonly models: readonly string[];
    readonly priority: number;
  }>;
  readonly profiles: Readonly<Record<string, ProtocolProfile>>;
  readonly nodes: readonly NodeRecord[];
  readonly models: readonly ModelOptions[];
}

type Env = Readonly<Record<string, string | undefined>>;

/**
 * Reads edge.yaml.
 * @throws ConfigError with every problem at once.
 */
export function loadEdgeConfig(
  file: string,
  { checkOnly, env }: { readonly checkOnly: boolean; readonly env: Env },
): LoadedConfig<EdgeConfig> {
  let references: EdgeReferences = {};
  const { config, warnings } = loadConfigFile(file, {
    schema: edgeSchema,
    check: (data, report) => {
      const folder = dirname(file);
      references = checkEdgeReferences(data, report, { env, checkOnly, folder, builtInProfiles });
    },
    unsupported: unsupportedEdgeKeys,
  });
  return { config: toEdgeConfig(config, references, env), warnings };
}

function toEdgeConfig(file: EdgeFile, { identity }: EdgeReferences, env: Env): EdgeConfig {
  const { edge } = file;
  const { admin } = edge.listen;
  const adminKey = admin.key && digestOf(admin.key, env);
  return {
    name: edge.name,
    mode: edge.mode,
    listen: {
      nodes: { host: edge.listen.nodes.host, port: edge.listen.nodes.port },
      http: {
        host: edge.listen.http.host,
        port: edge.listen.http.port,
        allowedHosts: edge.listen.http.allowed_hosts,
        allowedOrigins: edge.listen.http.allowed_origins,
      },
      admin: {
        host: admin.host,
        port: admin.port,
        ...(adminKey === undefined ? {} : { keySha256: adminKey }),
      },
    },
    heartbeat: {
      intervalMs: milliseconds(edge.heartbeat.interval_sec),
      waitMs: milliseconds(edge.heartbeat.wait_sec),
    },
    limits: {
      bodyBytes: edge.limits.body_bytes,
      bufferedRequestBytes: edge.limits.buffered_request_bytes,
      streamWindowBytes: edge.limits.stream_window_bytes,
      connectionWindowBytes: edge.limits.connection_window_bytes,
    },
    queue: {
      timeoutMs: milliseconds(edge.queue.timeout_sec),
      maxWaiting: edge.queue.max_waiting,
      offlineGraceMs: milliseconds(edge.queue.offline_grace_sec),
    },
    attributionHeaders: edge.attribution_headers,
    drainTimeoutMs: milliseconds(edge.drain_timeout_sec),
    ...(identity === undefined ? {} : { tls: identity }),
    // A digest is missing only where the file is merely checked, and then nobody reads it.
    apiKeys: file.api_keys.map((key) => ({
      name: key.name,
      sha256: digestOf(key, env) ?? "",
      models: key.models,
      priority: key.priority,
    })),
    profiles: Object.fromEntries([
      ...builtInProfiles,
      ...Object.entries(file.protocol_profiles).map(
        ([name, profile]) => [name, resolveProfile(name, profile)] as const,
      ),
    ]),
    nodes: file.nodes.map((node) => ({
      name: node.name,
      tokenSha256: digestOf(node.token, env) ?? "",
      providers: node.providers.map((provider) => ({
        id: provider.id,
        adapter: provider.adapter,
        profile: provider.profile,
        ...(provider.endpoint === undefined ? {} : { endpoint: provider.endpoint }),
        capacity: provider.capacity,
        ...(provider.long === undefined
          ? {}
          : { long: { capacity: provider.long.capacity, thresholdTokens: provider.long.threshold_tokens } }),
        usageAttribution: provider.usage_attribution,
        enabled: provider.enabled,
        ...(provider.auth === undefined ? {} : { authEnv: provider.auth.env }),
        firstByteTimeoutMs: milliseconds(provider.timeouts.first_byte_sec),
        idleTimeoutMs: milliseconds(provider.timeouts.idle_sec),
      })),
    })),
    models: Object.entries(file.models).map(([key, model]) => ({ key, candidates: model.candidates })),
  };
}

function milliseconds(seconds: number): number {
  return Math.round(seconds * 1000);
}
