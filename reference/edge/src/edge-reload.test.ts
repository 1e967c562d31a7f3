import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createEdge } from "@iop/edge-core";
import { HttpAccess } from "@iop/edge-http";
import { createLog, sha256Hex } from "@iop/reference-host";
import { memoryTransport } from "@iop/wire/memory";
import { afterAll, beforeAll, expect, it } from "vitest";
import { type EdgeConfig, loadEdgeConfig } from "./edge-config.ts";
import { accessRules, reloadEdge } from "./edge-reload.ts";

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "iop-edge-reload-"));
});
afterAll(() => rmSync(folder, { recursive: true }));

const KEY = `[{ name: a, sha256: "${sha256Hex("a")}" }]`;

function parse(edge: string, rest = `api_keys: ${KEY}`): EdgeConfig {
  const file = join(folder, "edge.yaml");
  writeFileSync(file, `edge: { name: e${edge} }\n${rest}\n`);
  return loadEdgeConfig(file, { checkOnly: false, env: {} }).config;
}

/** An Edge of `config`, and what reloading says. */
function running(config: EdgeConfig): {
  readonly reload: (next: EdgeConfig) => void;
  readonly revision: () => number;
  readonly lines: string[];
} {
  const lines: string[] = [];
  const log = createLog("test", {
    write: (line) => {
      const { msg }: { msg: string } = JSON.parse(line);
      lines.push(msg);
    },
  });
  const edge = createEdge({ name: "e", transport: memoryTransport(), nodes: [], models: [] });
  const access = new HttpAccess(accessRules(config, config.listen.http.host));
  return {
    lines,
    revision: () => edge.snapshot().edge.config_revision,
    reload: (next) => reloadEdge({ config, edge, access, log }, next),
  };
}

it("does not open an Edge that listens elsewhere than on loopback, whatever address the file names by then", () => {
  const { reload, revision } = running(parse(", listen: { http: { host: 0.0.0.0 } }"));
  expect(() => reload(parse("", "api_keys: []"))).toThrow(
    "there are no api_keys, and the Edge listens on 0.0.0.0",
  );
  expect(revision()).toBe(1);
  reload(parse(""));
  expect(revision()).toBe(2);
});

it.each([
  ["edge.name", "x"],
  ["edge.listen.nodes", ", listen: { nodes: { port: 1 } }"],
  ["edge.listen.http.host", ", listen: { http: { host: localhost } }"],
  ["edge.listen.http.port", ", listen: { http: { port: 1 } }"],
  ["edge.listen.admin", `, listen: { admin: { key: { sha256: "${sha256Hex("k")}" } } }`],
  ["edge.heartbeat", ", heartbeat: { wait_sec: 9 }"],
  ["edge.limits", ", limits: { body_bytes: 9 }"],
  ["edge.drain_timeout_sec", ", drain_timeout_sec: 9"],
])("says that %s needs a restart", (key, edge) => {
  const { reload, lines } = running(parse(""));
  reload(parse(edge));
  expect(lines).toEqual([`changed, but in force only after a restart: ${key}`, "configuration reloaded"]);
});

it("says nothing of what is in force at once", () => {
  const { reload, lines } = running(parse(""));
  reload(
    parse(', listen: { http: { allowed_hosts: [a.example], allowed_origins: ["https://a.example"] } }', ""),
  );
  expect(lines).toEqual(["configuration reloaded"]);
});
