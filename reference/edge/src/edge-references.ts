import {
  type ConfigReport,
  type IdentityPem,
  type SecretReference,
  digestOf,
  isLoopbackHost,
  readIdentityFiles,
} from "@iop/reference-host";
import { z } from "zod";

/**
 * The parts of edge.yaml that refer to each other, read leniently: what is malformed becomes absent (the
 * schema reports it), and the rest is still checked.
 */
const optionalText = z.string().optional().catch(undefined);
const secret = {
  env: optionalText,
  sha256: z
    .string()
    .regex(/^[0-9a-fA-F]{64}$/)
    .optional()
    .catch(undefined),
};
const listener = z
  .looseObject({
    host: optionalText,
    insecure: z.boolean().optional().catch(undefined),
    key: z.unknown().optional(),
  })
  .optional()
  .catch(undefined);
const loose = z.looseObject({
  edge: z
    .looseObject({
      listen: z.looseObject({ nodes: listener, http: listener, admin: listener }).optional().catch(undefined),
      heartbeat: z
        .looseObject({
          interval_sec: z.number().optional().catch(undefined),
          wait_sec: z.number().optional().catch(undefined),
        })
        .optional()
        .catch(undefined),
      queue: z
        .looseObject({
          timeout_sec: z.number().optional().catch(undefined),
          offline_grace_sec: z.number().optional().catch(undefined),
        })
        .optional()
        .catch(undefined),
      limits: z
        .looseObject({
          body_bytes: z.number().optional().catch(undefined),
          buffered_request_bytes: z.number().optional().catch(undefined),
          stream_window_bytes: z.number().optional().catch(undefined),
          connection_window_bytes: z.number().optional().catch(undefined),
        })
        .optional()
        .catch(undefined),
      tls: z.looseObject({ cert: optionalText, key: optionalText }).optional().catch(undefined),
    })
    .optional()
    .catch(undefined),
  api_keys: looseList(z.looseObject({ name: optionalText, models: looseList(optionalText), ...secret })),
  protocol_profiles: looseRecord(
    z.looseObject({ driver: z.unknown().optional(), operations: looseRecord(optionalText) }),
  ),
  nodes: looseList(
    z.looseObject({
      name: optionalText,
      token: z.looseObject(secret).optional().catch(undefined),
      providers: looseList(
        z.looseObject({
          id: optionalText,
          adapter: optionalText,
          profile: optionalText,
          endpoint: z.unknown().optional(),
          capacity: z.number().optional().catch(undefined),
          long: z
            .looseObject({ capacity: z.number().optional().catch(undefined) })
            .optional()
            .catch(undefined),
          auth: z.unknown().optional(),
        }),
      ),
    }),
  ),
  models: looseRecord(
    z.looseObject({
      candidates: looseList(
        z.looseObject({ node: optionalText, provider: optionalText, target: optionalText }),
      ),
    }),
  ),
});
type Loose = z.output<typeof loose>;

function looseList<T extends z.ZodType>(
  item: T,
): z.ZodCatch<z.ZodDefault<z.ZodArray<z.ZodCatch<z.ZodOptional<T>>>>> {
  return z.array(item.optional().catch(undefined)).default([]).catch([]);
}

function looseRecord<T extends z.ZodType>(
  value: T,
): z.ZodCatch<z.ZodDefault<z.ZodRecord<z.ZodString, z.ZodCatch<z.ZodOptional<T>>>>> {
  return z.record(z.string(), value.optional().catch(undefined)).default({}).catch({});
}

export interface ReferenceContext {
  /** What relative paths start from. */
  readonly folder: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Judges the file alone: a variable that is not set here is a warning. */
  readonly checkOnly: boolean;
  readonly builtInProfiles: ReadonlyMap<string, { readonly operations: Readonly<Record<string, string>> }>;
}

/** What edge.yaml refers to and is read with it. */
export interface EdgeReferences {
  readonly identity?: IdentityPem | undefined;
}

/** Checks everything in edge.yaml that needs more than one key, or another file, to judge. */
export function checkEdgeReferences(
  data: unknown,
  report: ConfigReport,
  context: ReferenceContext,
): EdgeReferences {
  const parsed = loose.safeParse(data);
  if (!parsed.success) return {};
  const file = parsed.data;
  checkListeners(file, report);
  checkNumbers(file, report);
  checkSecrets(file, report, context);
  checkProfiles(file, report, context);
  const providers = checkNodes(file, report, context);
  checkModels(file, report, providers);
  const { tls } = file.edge ?? {};
  return tls === undefined
    ? {}
    : { identity: readIdentityFiles(tls, { folder: context.folder, path: ["edge", "tls"], report }) };
}

function checkListeners(file: Loose, report: ConfigReport): void {
  const listen = file.edge?.listen;
  const { nodes, http, admin } = listen ?? {};
  if (file.edge?.tls !== undefined) {
    if (nodes?.insecure === true)
      report.warning(["edge", "listen", "nodes", "insecure"], "does nothing beside edge.tls");
  } else if (nodes?.host !== undefined && !isLoopbackHost(nodes.host) && nodes.insecure !== true) {
    report.error(
      ["edge", "listen", "nodes", "host"],
      "is not loopback, and tokens and prompts would cross the network in plain text; configure edge.tls, or say insecure: true beside it",
    );
  }
  if (http?.host !== undefined && !isLoopbackHost(http.host) && file.api_keys.length === 0) {
    report.error(
      ["edge", "listen", "http", "host"],
      "is not loopback although there are no api_keys, so anybody who reaches it could use every model; add api_keys",
    );
  }
  if (admin?.host !== undefined && !isLoopbackHost(admin.host) && admin.key === undefined) {
    report.error(["edge", "listen", "admin", "host"], "is not loopback; that needs a key beside it");
  }
}

function checkNumbers(file: Loose, report: ConfigReport): void {
  const { interval_sec: interval = 2, wait_sec: wait = 5 } = file.edge?.heartbeat ?? {};
  if (wait <= interval)
    report.error(
      ["edge", "heartbeat", file.edge?.heartbeat?.wait_sec === undefined ? "interval_sec" : "wait_sec"],
      `the wait (${wait} s) must be longer than the interval (${interval} s)`,
    );
  const { stream_window_bytes: stream = 262_144, connection_window_bytes: connection = 1_048_576 } =
    file.edge?.limits ?? {};
  if (connection < stream)
    report.error(
      [
        "edge",
        "limits",
        file.edge?.limits?.connection_window_bytes === undefined
          ? "stream_window_bytes"
          : "connection_window_bytes",
      ],
      `the connection's window (${connection}) must be at least a stream's (${stream})`,
    );
  const { body_bytes: body = 33_554_432, buffered_request_bytes: buffered = 536_870_912 } =
    file.edge?.limits ?? {};
  if (buffered < body)
    report.error(
      [
        "edge",
        "limits",
        file.edge?.limits?.buffered_request_bytes === undefined ? "body_bytes" : "buffered_request_bytes",
      ],
      `the bodies of all requests (${buffered}) must be allowed at least the longest body (${body})`,
    );
  const { timeout_sec: timeout = 60, offline_grace_sec: grace = 0 } = file.edge?.queue ?? {};
  if (grace > timeout)
    report.warning(
      ["edge", "queue", "offline_grace_sec"],
      `requests wait ${timeout} s at most (timeout_sec)`,
    );
}

/** Names and secrets that tell callers or Nodes apart must differ. */
function checkSecrets(file: Loose, report: ConfigReport, { env, checkOnly }: ReferenceContext): void {
  const unset = (path: ReadonlyArray<string | number>, reference: SecretReference | undefined): void => {
    if (reference?.env === undefined || reference.sha256 !== undefined) return;
    if ((env[reference.env] ?? "") !== "") return;
    report[checkOnly ? "warning" : "error"](
      [...path, "env"],
      `the environment variable ${reference.env} is not set`,
    );
  };
  const unique = (list: "api_keys" | "nodes", what: string): ((index: number, digest: string) => void) => {
    const seen = new Map<string, number>();
    return (index, digest) => {
      const first = seen.get(digest);
      if (first === undefined) seen.set(digest, index);
      else report.error([list, index], `has the same ${what} as ${list}[${first}]`);
    };
  };

  const keyNames = unique("api_keys", "name");
  const keyDigests = unique("api_keys", "secret");
  for (const [index, key] of file.api_keys.entries()) {
    if (key === undefined) continue;
    unset(["api_keys", index], key);
    if (key.name !== undefined) keyNames(index, key.name);
    const digest = digestOf(key, env);
    if (digest !== undefined) keyDigests(index, digest);
    for (const [position, model] of key.models.entries()) {
      if (model === undefined || model.includes("*") || Object.hasOwn(file.models, model)) continue;
      report.error(["api_keys", index, "models", position], "is not a key of models, nor a pattern with *");
    }
  }
  const nodeNames = unique("nodes", "name");
  const nodeDigests = unique("nodes", "token");
  for (const [index, node] of file.nodes.entries()) {
    if (node === undefined) continue;
    unset(["nodes", index, "token"], node.token);
    if (node.name !== undefined) nodeNames(index, node.name);
    const digest = node.token && digestOf(node.token, env);
    if (digest !== undefined) nodeDigests(index, digest);
  }
  unset(
    ["edge", "listen", "admin", "key"],
    z.looseObject(secret).safeParse(file.edge?.listen?.admin?.key).data,
  );
}

function checkProfiles(file: Loose, report: ConfigReport, { builtInProfiles }: ReferenceContext): void {
  for (const [name, profile] of Object.entries(file.protocol_profiles)) {
    if (profile === undefined || builtInProfiles.has(name)) continue;
    if (profile.driver === undefined)
      report.error(["protocol_profiles", name], "needs a driver: it overrides no built-in profile");
    if (Object.keys(profile.operations).length === 0)
      report.error(["protocol_profiles", name], "needs operations: it overrides no built-in profile");
  }
}

/** @returns the provider ids of each node. */
function checkNodes(file: Loose, report: ConfigReport, context: ReferenceContext): Map<string, Set<string>> {
  const byNode = new Map<string, Set<string>>();
  for (const [index, node] of file.nodes.entries()) {
    if (node === undefined) continue;
    const ids = new Set<string>();
    if (node.name !== undefined) byNode.set(node.name, ids);
    for (const [position, provider] of node.providers.entries()) {
      if (provider === undefined) continue;
      const path = ["nodes", index, "providers", position] as const;
      if (provider.id !== undefined) {
        if (ids.has(provider.id)) report.error([...path, "id"], "is used by another provider of this node");
        ids.add(provider.id);
      }
      checkProvider(file, report, context, path, provider);
    }
  }
  return byNode;
}

function checkProvider(
  file: Loose,
  report: ConfigReport,
  { builtInProfiles }: ReferenceContext,
  path: ReadonlyArray<string | number>,
  provider: NonNullable<NonNullable<Loose["nodes"][number]>["providers"][number]>,
): void {
  const { adapter, profile = "openai-chat", endpoint, capacity = 4, long } = provider;
  if (long?.capacity !== undefined && long.capacity > capacity)
    report.error([...path, "long", "capacity"], `is more than the provider's capacity (${capacity})`);
  const own = Object.hasOwn(file.protocol_profiles, profile) ? file.protocol_profiles[profile] : undefined;
  const builtIn = builtInProfiles.get(profile);
  if (own === undefined && builtIn === undefined && !Object.hasOwn(file.protocol_profiles, profile)) {
    const known = [...builtInProfiles.keys(), ...Object.keys(file.protocol_profiles)];
    report.error([...path, "profile"], `no such profile; known are ${known.join(", ")}`);
  }
  if (adapter === "openai-compat" && endpoint === undefined)
    report.error([...path, "endpoint"], "is missing; the openai-compat adapter needs it");
  if (typeof endpoint !== "string" || !/\/v1\/?$/.test(endpoint)) return;
  const paths = Object.values({ ...builtIn?.operations, ...own?.operations });
  if (paths.some((operation) => operation?.startsWith("/v1/")))
    report.error(
      [...path, "endpoint"],
      "must be without /v1: the profile's operations bring it (/v1/chat/completions)",
    );
}

function checkModels(
  file: Loose,
  report: ConfigReport,
  byNode: ReadonlyMap<string, ReadonlySet<string>>,
): void {
  for (const [key, model] of Object.entries(file.models)) {
    const seen = new Set<string>();
    for (const [index, candidate] of (model?.candidates ?? []).entries()) {
      if (candidate?.node === undefined || candidate.provider === undefined) continue;
      const path = ["models", key, "candidates", index] as const;
      const ids = byNode.get(candidate.node);
      if (ids === undefined)
        report.error([...path, "node"], `no node is named ${JSON.stringify(candidate.node)}`);
      else if (!ids.has(candidate.provider))
        report.error(
          [...path, "provider"],
          `node ${candidate.node} has no provider ${JSON.stringify(candidate.provider)}`,
        );
      const identity = JSON.stringify([candidate.node, candidate.provider, candidate.target]);
      if (seen.has(identity)) report.error(path, "is listed twice");
      seen.add(identity);
    }
  }
}
