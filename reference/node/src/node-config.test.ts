import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ConfigError } from "@iop/reference-host";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createAuthority } from "../../../test/support/certificates.ts";
import { loadNodeConfig } from "./node-config.ts";

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "iop-node-config-"));
});
afterAll(() => rmSync(folder, { recursive: true }));

const good = `node:
  name: gpu-1
  edge: { host: 127.0.0.1 }
  token: { env: TOKEN }
`;

function load(text: string, env: Record<string, string> = { TOKEN: "t" }, checkOnly = false) {
  const file = join(folder, "node.yaml");
  writeFileSync(file, text);
  return loadNodeConfig(file, { checkOnly, env });
}

function problems(text: string, env?: Record<string, string>): string[] {
  try {
    load(text, env);
    return [];
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return error.message.split("\n").map((line) => line.slice(join(folder, "node.yaml:").length));
  }
}

const metrics = (text: string) => load(`${good}  metrics: ${text}\n`).config.metrics;

describe("node.yaml", () => {
  it("fills in defaults: ten attempts, ten seconds apart, loopback endpoints, no variables", () => {
    expect(load(good).config).toEqual({
      name: "gpu-1",
      edge: { host: "127.0.0.1", port: 7443 },
      token: "t",
      reconnect: { maxAttempts: 10, intervalMs: 10_000 },
      metrics: undefined,
      drainTimeoutMs: 30_000,
      allow: { endpoints: ["http://127.0.0.1:*", "http://localhost:*"], env: [] },
    });
  });

  it("serves metrics where it is told to, on loopback unless it is told where", () => {
    expect(metrics("{ port: 1 }")).toBeUndefined();
    expect(metrics("{ enabled: true }")).toEqual({ host: "127.0.0.1", port: 9100 });
    expect(metrics("{ enabled: true, host: 0.0.0.0, port: 0 }")).toEqual({ host: "0.0.0.0", port: 0 });
  });

  it("takes an explicit 0 as unlimited, with the default interval", () => {
    const { reconnect } = load(`${good}  reconnect: { max_attempts: 0 }\n`).config;
    expect(reconnect).toEqual({ maxAttempts: 0, intervalMs: 10_000 });
  });

  it("warns of an unset token where the file alone is judged", () => {
    expect(load(good, {}, true).warnings).toHaveLength(1);
  });

  it.each([
    ["an unset token", good, {}, "4:17: node.token.env: the environment variable TOKEN is not set"],
    [
      "an empty token",
      good,
      { TOKEN: "" },
      "4:17: node.token.env: the environment variable TOKEN is not set",
    ],
    [
      "a digest for a token",
      good.replace("env: TOKEN", `sha256: "${"a".repeat(64)}"`),
      undefined,
      "4:3: node.token.env: is missing",
    ],
    [
      "a token in the file",
      good.replace("{ env: TOKEN }", "s3cr3t"),
      undefined,
      "4:10: node.token: must be { env: NAME }; a secret itself never stands in this file",
    ],
    [
      "unlimited attempts without a pause",
      `${good}  reconnect: { max_attempts: 0, interval_sec: 0 }\n`,
      undefined,
      "5:47: node.reconnect.interval_sec: must be above 0 where max_attempts is 0 (unlimited)",
    ],
    [
      "a negative number",
      `${good}  reconnect: { max_attempts: -1 }\n`,
      undefined,
      "5:30: node.reconnect.max_attempts: must be at least 0",
    ],
    [
      "another host in plain text",
      good.replace("127.0.0.1", "edge.example"),
      undefined,
      "3:17: node.edge.host: is another machine, and the token and prompts would cross the network in plain text",
    ],
    [
      "an authority that is not there",
      good.replace("127.0.0.1", "127.0.0.1, tls: { ca: no.crt }"),
      undefined,
      "3:39: node.edge.tls.ca: cannot be read (ENOENT)",
    ],
    [
      "an authority that is none",
      good.replace("127.0.0.1", "127.0.0.1, tls: { ca: node.yaml }"),
      undefined,
      "3:39: node.edge.tls.ca: must be a PEM file of certificates",
    ],
    [
      "TLS without an authority",
      good.replace("127.0.0.1", "127.0.0.1, tls: {}"),
      undefined,
      "3:28: node.edge.tls.ca: is missing",
    ],
    [
      "port 0",
      good.replace("127.0.0.1", "127.0.0.1, port: 0"),
      undefined,
      "3:34: node.edge.port: must be at least 1",
    ],
    [
      "an endpoint pattern that is none",
      `${good}  allow: { endpoints: ["127.0.0.1"] }\n`,
      undefined,
      "5:24: node.allow.endpoints[0]: must be http(s)://HOST",
    ],
    [
      "the store of fuller versions",
      `${good}  store: { url: x }\n`,
      undefined,
      "5:3: node.store: is not supported by this version of IOP; remove it",
    ],
    [
      "managed mode",
      good.replace("gpu-1\n", "gpu-1\n  mode: managed\n"),
      undefined,
      "3:9: node.mode: managed mode is not supported by this version of IOP; use legacy",
    ],
  ] as const)("refuses %s", (_name, text, env, expected) => {
    const found = problems(text, env);
    expect(found[0]).toContain(expected);
    expect(found.join()).not.toContain("s3cr3t");
  });

  it("takes TLS with an authority beside it, to any host; insecure then means nothing", async () => {
    const { ca } = await createAuthority();
    writeFileSync(join(folder, "ca.crt"), `# for the Edge\n${ca}\n`);
    const text = good.replace("127.0.0.1", "edge.example, tls: { ca: ca.crt, server_name: edge-1.example }");
    const { config, warnings } = load(text);
    expect(config.edge).toMatchObject({
      host: "edge.example",
      tls: { ca: expect.stringContaining(ca), serverName: "edge-1.example" },
    });
    expect(warnings).toEqual([]);
    const twice = load(text.replace("tls:", "insecure: true, tls:"));
    expect(twice.warnings.map(({ message }) => message)).toEqual(["does nothing beside node.edge.tls"]);
  });

  it("dials another host in plain text where it is told to", () => {
    const text = good.replace("127.0.0.1", "edge.example, insecure: true, name: edge-1");
    expect(load(text).config.edge).toEqual({ host: "edge.example", port: 7443, name: "edge-1" });
  });
});
