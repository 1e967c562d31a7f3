import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ConfigError } from "@iop/reference-host";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createAuthority } from "../../../test/support/certificates.ts";
import { loadEdgeConfig } from "./edge-config.ts";

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "iop-edge-config-"));
});
afterAll(() => rmSync(folder, { recursive: true }));

const digest = (character: string): string => character.repeat(64);

const good = `edge:
  name: edge-1
api_keys:
  - { name: alice, sha256: "${digest("a")}", models: ["*"] }
nodes:
  - name: gpu-1
    token: { sha256: "${digest("b")}" }
    providers:
      - id: vllm-a
        adapter: openai-compat
        endpoint: http://127.0.0.1:8000
models:
  qwen3:
    candidates:
      - { node: gpu-1, provider: vllm-a, target: Qwen/Qwen3-32B }
`;

function load(text: string, options: { checkOnly?: boolean; env?: Record<string, string> } = {}) {
  const file = join(folder, "edge.yaml");
  writeFileSync(file, text);
  return loadEdgeConfig(file, { checkOnly: options.checkOnly ?? false, env: options.env ?? {} });
}

/** `LINE:COLUMN: path: message` of each problem, in order. */
function problems(text: string, options?: Parameters<typeof load>[1]): string[] {
  try {
    load(text, options);
    return [];
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return error.message.split("\n").map((line) => line.slice(join(folder, "edge.yaml:").length));
  }
}

describe("edge.yaml", () => {
  it("fills in defaults and the code's units", () => {
    expect(load(good).config).toEqual({
      name: "edge-1",
      mode: "legacy",
      listen: {
        nodes: { host: "127.0.0.1", port: 7443 },
        http: { host: "127.0.0.1", port: 8080, allowedHosts: [], allowedOrigins: [] },
        admin: { host: "127.0.0.1", port: 8081 },
      },
      heartbeat: { intervalMs: 2000, waitMs: 5000 },
      limits: {
        bodyBytes: 33_554_432,
        bufferedRequestBytes: 536_870_912,
        streamWindowBytes: 262_144,
        connectionWindowBytes: 1_048_576,
      },
      queue: { timeoutMs: 60_000, maxWaiting: 1_000, offlineGraceMs: 0 },
      attributionHeaders: true,
      drainTimeoutMs: 30_000,
      apiKeys: [{ name: "alice", sha256: digest("a"), models: ["*"], priority: 0 }],
      profiles: {
        "openai-chat": {
          driver: "openai_chat",
          auth: { header: "authorization", scheme: "Bearer" },
          operations: { chat_completions: "/v1/chat/completions", models: "/v1/models" },
          capabilities: ["chat", "streaming", "tools"],
          extensions: {},
        },
      },
      nodes: [
        {
          name: "gpu-1",
          tokenSha256: digest("b"),
          providers: [
            {
              id: "vllm-a",
              adapter: "openai-compat",
              profile: "openai-chat",
              endpoint: "http://127.0.0.1:8000",
              capacity: 4,
              usageAttribution: "provider",
              enabled: true,
              firstByteTimeoutMs: 600_000,
              idleTimeoutMs: 300_000,
            },
          ],
        },
      ],
      models: [
        {
          key: "qwen3",
          candidates: [{ node: "gpu-1", provider: "vllm-a", target: "Qwen/Qwen3-32B", weight: 1 }],
        },
      ],
    });
  });

  it("takes what bounds and orders requests", () => {
    const text = good
      .replace("\n", "\n  queue: { timeout_sec: 1.5, max_waiting: 0, offline_grace_sec: 0.25 }\n")
      .replace('models: ["*"]', 'models: ["*"], priority: -3')
      .replace(
        "        adapter: openai-compat\n",
        "        adapter: openai-compat\n        capacity: 4\n        long: { capacity: 1, threshold_tokens: 32000 }\n",
      )
      .replace("target: Qwen/Qwen3-32B", "target: t, weight: 0.5");
    const { config, warnings } = load(text);
    expect(warnings).toEqual([]);
    expect(config).toMatchObject({
      queue: { timeoutMs: 1_500, maxWaiting: 0, offlineGraceMs: 250 },
      apiKeys: [{ priority: -3 }],
      nodes: [{ providers: [{ capacity: 4, long: { capacity: 1, thresholdTokens: 32_000 } }] }],
      models: [{ candidates: [{ weight: 0.5 }] }],
    });
    expect(problems(text.replace("long: { capacity: 1", "long: { capacity: 5"))).toEqual([
      expect.stringMatching(
        /nodes\[0\]\.providers\[0\]\.long\.capacity: is more than the provider's capacity \(4\)$/,
      ),
    ]);
    expect(problems(text.replace("weight: 0.5", "weight: 0"))).toEqual([
      expect.stringContaining("models.qwen3.candidates[0].weight"),
    ]);
  });

  it("judges bounds that depend on each other", () => {
    const limits = "limits: { body_bytes: 1000, buffered_request_bytes: 999 }";
    expect(problems(good.replace("\n", `\n  ${limits}\n`))).toEqual([
      expect.stringMatching(/edge\.limits\.buffered_request_bytes: .*\(999\) .*\(1000\)$/),
    ]);
    const { warnings } = load(good.replace("\n", "\n  queue: { offline_grace_sec: 61 }\n"));
    expect(warnings.map(({ line, message }) => [line, message])).toEqual([
      [2, "requests wait 60 s at most (timeout_sec)"],
    ]);
  });

  it("overrides a built-in profile key by key, and lowers its header", () => {
    const text = `${good}protocol_profiles:\n  openai-chat:\n    auth: { header: X-Api-Key }\n`;
    expect(load(text).config.profiles["openai-chat"]).toMatchObject({
      driver: "openai_chat",
      auth: { header: "x-api-key" },
      operations: { models: "/v1/models" },
    });
  });

  it("hashes a secret from the environment", () => {
    const text = good.replace(`token: { sha256: "${digest("b")}" }`, "token: { env: TOKEN }");
    // echo -n secret | sha256sum
    expect(load(text, { env: { TOKEN: "secret" } }).config.nodes[0]?.tokenSha256).toBe(
      "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b",
    );
    expect(problems(text)).toEqual(["7:19: nodes[0].token.env: the environment variable TOKEN is not set"]);
  });

  it("only warns of an unset variable where the file alone is judged", () => {
    const { warnings } = load(good.replace(`sha256: "${digest("a")}"`, "env: KEY"), { checkOnly: true });
    expect(warnings.map(({ line, severity, message }) => [line, severity, message])).toEqual([
      [4, "warning", "the environment variable KEY is not set"],
    ]);
  });

  it("reports everything at once, in the order of the file", () => {
    const text = `edge:
  nmae: x
  mode: managed
  listen:
    http: { host: 0.0.0.0, port: 80800 }
    nodes: { host: 10.0.0.1 }
    admin: { host: 10.0.0.1 }
  control_plane: { url: x }
nodes:
  - name: gpu-1
    token: hunter2-is-my-token
    providers:
      - { id: a, adapter: openai-compat, endpoint: "http://u:hunter2@h", capacity: 0 }
      - { id: a, adapter: openai-compat, profile: nope }
models:
  m:
    candidates: [{ node: gpu-1, provider: b, target: t }, { node: gpu-2, provider: a, target: t }]
`;
    const found = problems(text);
    expect(found).toEqual(
      [
        "1:1: edge.name: is missing",
        '2:3: edge.nmae: unknown key; did you mean "name"?',
        "3:9: edge.mode: managed mode is not supported by this version of IOP; use legacy",
        "5:19: edge.listen.http.host: is not loopback although there are no api_keys, so anybody who reaches it could use every model; add api_keys",
        "5:34: edge.listen.http.port: must be at most 65535",
        "6:20: edge.listen.nodes.host: is not loopback, and tokens and prompts would cross the network in plain text; configure edge.tls, or say insecure: true beside it",
        "7:20: edge.listen.admin.host: is not loopback; that needs a key beside it",
        "8:3: edge.control_plane: is not supported by this version of IOP; remove it",
        "11:12: nodes[0].token: must be { env: NAME } or { sha256: … }; a secret itself never stands in this file",
        "13:52: nodes[0].providers[0].endpoint: must be an http or https URL without user, query or fragment",
        "13:84: nodes[0].providers[0].capacity: must be at least 1",
        "14:9: nodes[0].providers[1].endpoint: is missing; the openai-compat adapter needs it",
        "14:15: nodes[0].providers[1].id: is used by another provider of this node",
        "14:51: nodes[0].providers[1].profile: no such profile; known are openai-chat",
        "models.m.candidates[0].provider",
        "models.m.candidates[1].node",
      ].map((line, index) => (index < 14 ? line : expect.stringContaining(line))),
    );
    expect(found.join()).not.toContain("hunter2");
  });

  it.each([
    [
      "an API key of an unknown model",
      good.replace('"*"', '"nope"'),
      "4:105: api_keys[0].models[0]: is not a key of models",
    ],
    [
      "two nodes of one token",
      good.replace(
        "models:\n  qwen3",
        `  - name: gpu-2\n    token: { sha256: "${digest("B")}" }\n    providers: [{ id: a, adapter: x }]\nmodels:\n  qwen3`,
      ),
      "12:5: nodes[1]: has the same token as nodes[0]",
    ],
    [
      "a digest that is none",
      good.replace(digest("b"), "b"),
      "7:22: nodes[0].token.sha256: must be a SHA-256 digest",
    ],
    [
      "both ways of a secret",
      good.replace("token: { ", "token: { env: X, "),
      "must have either env or sha256",
    ],
    [
      "/v1 twice",
      good.replace(":8000", ":8000/v1"),
      "11:19: nodes[0].providers[0].endpoint: must be without /v1",
    ],
    [
      "a heartbeat that cannot be answered",
      good.replace("edge-1\n", "edge-1\n  heartbeat: { wait_sec: 1 }\n"),
      "3:26: edge.heartbeat.wait_sec: the wait (1 s) must be longer",
    ],
    [
      "a connection's window below a stream's",
      good.replace("edge-1\n", "edge-1\n  limits: { connection_window_bytes: 200000 }\n"),
      "the connection's window (200000) must be at least a stream's",
    ],
    [
      "no candidates",
      good.replace(/candidates:[^]*/, "candidates: []\n"),
      "14:5: models.qwen3.candidates: must not be empty",
    ],
    [
      "a candidate twice",
      `${good}      - { node: gpu-1, provider: vllm-a, target: Qwen/Qwen3-32B }\n`,
      "16:9: models.qwen3.candidates[1]: is listed twice",
    ],
    [
      "a driver of another version",
      `${good}protocol_profiles:\n  x: { driver: anthropic_messages, operations: { messages: /v1/messages } }\n`,
      "17:16: protocol_profiles.x.driver: is not supported by this version of IOP; use openai_chat",
    ],
    [
      "a profile of its own without operations",
      `${good}protocol_profiles:\n  x: { driver: openai_chat }\n`,
      "17:3: protocol_profiles.x: needs operations",
    ],
    [
      "a model key with a dot",
      good.replace("qwen3:", "qwen3.6:").replace("vllm-a, target", "nope, target"),
      'models["qwen3.6"].candidates[0].provider: node gpu-1 has no provider "nope"',
    ],
  ])("refuses %s", (_name, text, expected) => {
    expect(problems(text)).toEqual([expect.stringContaining(expected)]);
  });

  it("lets everybody in who was asked in", () => {
    const text = good.replace(
      "edge-1\n",
      `edge-1\n  listen:\n    nodes: { host: 0.0.0.0, insecure: true }\n    http: { host: 0.0.0.0 }\n    admin: { host: 0.0.0.0, key: { sha256: "${digest("c")}" } }\n`,
    );
    expect(load(text).config.listen.admin.keySha256).toBe(digest("c"));
  });
});

const withTls = (tls: string): string => good.replace("edge-1\n", `edge-1\n  tls: ${tls}\n`);

describe("edge.tls", () => {
  beforeAll(async () => {
    const authority = await createAuthority();
    const [own, other, old, early] = await Promise.all([
      authority.issue(),
      authority.issue(),
      authority.issue({ days: [-3, -1] }),
      authority.issue({ days: [1, 3] }),
    ]);
    const files = {
      "edge.crt": `${own.cert}\n${authority.ca}\n`,
      "edge.key": own.key,
      "other.key": other.key,
      "old.crt": old.cert,
      "old.key": old.key,
      "early.crt": early.cert,
      "early.key": early.key,
      "half.crt": `${own.cert}\n-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n`,
      "text.txt": "hunter2",
    };
    for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
  });

  it("reads the files, relative to its own", () => {
    const { tls } = load(withTls("{ cert: edge.crt, key: ./edge.key }")).config;
    expect(tls?.cert).toMatch(/^-----BEGIN CERTIFICATE-----/);
    expect(tls?.key).toMatch(/^-----BEGIN PRIVATE KEY-----/);
    expect(load(withTls(`{ cert: ${folder}/edge.crt, key: ${folder}/edge.key }`)).config.tls).toEqual(tls);
  });

  it("is what a Node port off loopback needs; insecure then means nothing", () => {
    const tls = "{ cert: edge.crt, key: edge.key }\n  listen: { nodes: { host: 0.0.0.0 } }";
    expect(load(withTls(tls)).warnings).toEqual([]);
    const { warnings } = load(withTls(tls.replace("0.0.0.0", "0.0.0.0, insecure: true")));
    expect(warnings.map(({ line, message }) => [line, message])).toEqual([
      [4, "does nothing beside edge.tls"],
    ]);
  });

  it.each([
    [
      "files that are not there, both at once",
      "{ cert: no.crt, key: no.key }",
      [
        "3:16: edge.tls.cert: cannot be read (ENOENT); must be the path of a PEM file, relative to this one",
        "3:29: edge.tls.key: cannot be read (ENOENT)",
      ],
    ],
    ["a folder", "{ cert: ., key: edge.key }", ["3:16: edge.tls.cert: cannot be read (EISDIR)"]],
    [
      "files of something else",
      "{ cert: text.txt, key: text.txt }",
      [
        "3:16: edge.tls.cert: must be a PEM file that starts with a certificate",
        "3:31: edge.tls.key: must be a PEM file of a private key without a passphrase",
      ],
    ],
    [
      "a key that is another's",
      "{ cert: edge.crt, key: other.key }",
      ["3:31: edge.tls.key: is not the private key of the certificate in cert"],
    ],
    ["an expired one", "{ cert: old.crt, key: old.key }", ["3:16: edge.tls.cert: has expired on "]],
    ["an early one", "{ cert: early.crt, key: early.key }", ["3:16: edge.tls.cert: is not valid before "]],
    [
      "a broken chain",
      "{ cert: half.crt, key: edge.key }",
      ["3:16: edge.tls.cert: cannot be used for TLS ("],
    ],
    ["half of it", "{ cert: edge.crt }", ["3:3: edge.tls.key: is missing"]],
    [
      "what managed mode has",
      "{ cert: edge.crt, key: edge.key, ca: ca.crt }",
      ["3:41: edge.tls.ca: is not supported by this version of IOP; remove it"],
    ],
  ])("refuses %s", (_name, tls, expected) => {
    const found = problems(withTls(tls));
    expect(found).toEqual(expected.map((line) => expect.stringContaining(line)));
    expect(found.join()).not.toContain("hunter2");
  });
});
