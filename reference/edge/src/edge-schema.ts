import { ONE_SECRET, envReference, hasOneSecret, secretFields, secretReference } from "@iop/reference-host";
import { z } from "zod";

/** Names appear in logs, URLs and messages. */
export const name = z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/, {
  error: "must be 1 to 64 letters, digits, dots, dashes or underscores, and start with a letter or digit",
});

const host = z.string().min(1).max(253);
const port = z.int().min(0).max(65535);
/** Longer than any sensible wait, and within what a timer takes in milliseconds. */
const MAX_SECONDS = 7 * 24 * 3600;
const seconds = z.number().min(0).max(MAX_SECONDS);
const bytes = z.int().min(1);
const path = z.string().min(1).max(4096);

/** `http(s)://host[:port][/prefix]`, and nothing in it that could be a secret. */
const endpoint = z.string().refine(
  (text) => {
    const url = URL.parse(text);
    return (
      url !== null &&
      ["http:", "https:"].includes(url.protocol) &&
      url.username === "" &&
      url.password === "" &&
      url.search === "" &&
      url.hash === ""
    );
  },
  { error: "must be an http or https URL without user, query or fragment" },
);

const listen = z.strictObject({
  nodes: z
    .strictObject({
      host: host.default("127.0.0.1"),
      port: port.default(7443),
      insecure: z.boolean().default(false),
    })
    .prefault({}),
  http: z
    .strictObject({
      host: host.default("127.0.0.1"),
      port: port.default(8080),
      allowed_hosts: z.array(z.string().min(1)).default([]),
      allowed_origins: z.array(z.string().min(1)).default([]),
    })
    .prefault({}),
  admin: z
    .strictObject({
      host: host.default("127.0.0.1"),
      port: port.default(8081),
      key: secretReference.optional(),
    })
    .prefault({}),
});

const edge = z.strictObject({
  name,
  mode: z
    .literal("legacy", {
      error: (issue) =>
        issue.input === "managed"
          ? "managed mode is not supported by this version of IOP; use legacy"
          : undefined,
    })
    .default("legacy"),
  listen: listen.prefault({}),
  heartbeat: z
    .strictObject({
      interval_sec: seconds.min(0.05).default(2),
      wait_sec: seconds.min(0.1).default(5),
    })
    .prefault({}),
  limits: z
    .strictObject({
      body_bytes: bytes.max(2 ** 31 - 1).default(33_554_432),
      buffered_request_bytes: bytes.max(2 ** 40).default(536_870_912),
      stream_window_bytes: bytes
        .min(65_536)
        .max(2 ** 30)
        .default(262_144),
      connection_window_bytes: bytes
        .min(131_072)
        .max(2 ** 30)
        .default(1_048_576),
    })
    .prefault({}),
  queue: z
    .strictObject({
      timeout_sec: seconds.default(60),
      max_waiting: z.int().min(0).max(1_000_000).default(1_000),
      offline_grace_sec: seconds.default(0),
    })
    .prefault({}),
  attribution_headers: z.boolean().default(true),
  drain_timeout_sec: seconds.default(30),
  tls: z.strictObject({ cert: path, key: path }).optional(),
});

const apiKey = z
  .strictObject({
    name,
    ...secretFields,
    models: z.array(z.string().min(1)).min(1).default(["*"]),
    priority: z.int().min(-1_000).max(1_000).default(0),
  })
  .refine(hasOneSecret, { error: ONE_SECRET });

/** Absent keys of a profile that overrides a built-in one keep the built-in's value. */
const profile = z.strictObject({
  driver: z
    .literal("openai_chat", {
      error: (issue) =>
        issue.input === "anthropic_messages" || issue.input === "openai_responses"
          ? "is not supported by this version of IOP; use openai_chat"
          : undefined,
    })
    .optional(),
  auth: z
    .strictObject({
      header: z.string().regex(/^[A-Za-z0-9-]+$/, { error: "must be the name of an HTTP header" }),
      scheme: z
        .string()
        .regex(/^[A-Za-z0-9._~-]+$/, { error: "must be one word, such as Bearer" })
        .optional(),
    })
    .optional(),
  operations: z
    .record(
      z
        .string()
        .regex(/^[a-z][a-z0-9_]*$/, { error: "must be the name of an operation, such as chat_completions" }),
      z.string().regex(/^\/[^\s?#]*$/, { error: "must be a path that starts with /" }),
    )
    .optional(),
  capabilities: z.array(z.string().min(1)).optional(),
  extensions: z.record(z.string().min(1), z.boolean()).optional(),
});

const MAX_CAPACITY = 100_000;

const provider = z.strictObject({
  id: name,
  adapter: z.string().min(1).max(64),
  profile: z.string().min(1).default("openai-chat"),
  endpoint: endpoint.optional(),
  capacity: z.int().min(1).max(MAX_CAPACITY).default(4),
  long: z
    .strictObject({
      capacity: z.int().min(0).max(MAX_CAPACITY),
      threshold_tokens: z.int().min(1).max(1_000_000_000),
    })
    .optional(),
  usage_attribution: z.string().min(1).max(64).default("provider"),
  enabled: z.boolean().default(true),
  auth: envReference.optional(),
  timeouts: z
    .strictObject({
      first_byte_sec: seconds.default(600),
      idle_sec: seconds.default(300),
    })
    .prefault({}),
});

const node = z.strictObject({
  name,
  token: secretReference,
  providers: z.array(provider).min(1),
});

const candidate = z.strictObject({
  node: z.string().min(1),
  provider: z.string().min(1),
  target: z.string().min(1).max(512),
  weight: z.number().gt(0).max(1_000).default(1),
});

const model = z.strictObject({ candidates: z.array(candidate).min(1) });

/** edge.yaml. */
export const edgeSchema = z.strictObject({
  edge,
  api_keys: z.array(apiKey).default([]),
  protocol_profiles: z.record(name, profile).default({}),
  nodes: z.array(node).default([]),
  models: z.record(z.string().min(1).max(256), model).default({}),
});

/** edge.yaml as read, defaults filled in. */
export type EdgeFile = z.output<typeof edgeSchema>;

/** Keys that the documentation of fuller versions shows. */
export const unsupportedEdgeKeys = [
  "edge.tls.ca",
  "edge.tls.trust_domain",
  "edge.control_plane",
  "nodes.*.providers.*.publish",
  "models.*.token_counter",
];
