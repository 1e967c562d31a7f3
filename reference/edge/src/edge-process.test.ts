import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { parseReadyLine } from "@iop/reference-host";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";

const main = fileURLToPath(new URL("main.ts", import.meta.url));
const example = fileURLToPath(new URL("../../../configs/edge.yaml", import.meta.url));
const children = new Set<ChildProcess>();
let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "iop-edge-process-"));
});
afterEach(() => {
  for (const child of children) child.kill("SIGKILL");
  children.clear();
});
afterAll(() => rmSync(folder, { recursive: true }));

function file(text: string): string {
  const path = join(folder, "edge.yaml");
  writeFileSync(path, text);
  return path;
}

function start(...args: string[]): ChildProcess {
  const child = spawn(process.execPath, ["--conditions=@iop/source", main, ...args], {
    stdio: ["ignore", "pipe", "pipe"],
    env: { PATH: process.env["PATH"] },
  });
  children.add(child);
  return child;
}

/** What a process wrote, once it has ended. */
async function ended(child: ChildProcess): Promise<{ code: number | null; stdout: string; stderr: string }> {
  let stdout = "";
  let stderr = "";
  child.stdout?.on("data", (text) => (stdout += String(text)));
  child.stderr?.on("data", (text) => (stderr += String(text)));
  await once(child, "close", { signal: AbortSignal.timeout(15_000) });
  return { code: child.exitCode, stdout, stderr };
}

async function ready(child: ChildProcess): Promise<Record<string, string>> {
  if (child.stdout === null) throw new Error("no stdout");
  for await (const line of createInterface({ input: child.stdout })) {
    const found = parseReadyLine(line);
    if (found !== undefined) return found;
  }
  throw new Error("it ended before it was ready");
}

const free = "edge: { name: e, listen: { nodes: { port: 0 }, http: { port: 0 }, admin: { port: 0 } } }\n";

describe("iop-edge", () => {
  it("checks a file and says so", async () => {
    const { code, stdout, stderr } = await ended(start("--config", example, "--check"));
    expect(code).toBe(0);
    expect(stdout).toBe(`${example}: ok\n`);
    // The example takes its secrets from variables that are not set here.
    expect(stderr.trim().split("\n")).toEqual([
      expect.stringMatching(/edge\.yaml:\d+:\d+: api_keys\[0\]\.env: warning: .*ALICE_KEY is not set$/),
      expect.stringMatching(/edge\.yaml:\d+:\d+: nodes\[0\]\.token\.env: warning: .*GPU_1_TOKEN is not set$/),
    ]);
  });

  it.each([["--check"], []])("exits with 2 and all problems of a wrong file (%s)", async (...flags) => {
    const path = file("edge:\n  nmae: e\n  drain_timeout_sec: -1\n");
    const { code, stdout, stderr } = await ended(start("--config", path, ...flags));
    expect([code, stdout]).toEqual([2, ""]);
    expect(stderr).toBe(
      `${path}:1:1: edge.name: is missing\n${path}:2:3: edge.nmae: unknown key; did you mean "name"?\n` +
        `${path}:3:22: edge.drain_timeout_sec: must be at least 0\n`,
    );
  });

  it.each([
    ["without a file", []],
    ["with an unknown option", ["--config", "x", "--nope"]],
    ["with a file that is not there", ["--config", "/nowhere/edge.yaml"]],
  ])("exits with 2 %s", async (_name, args) => {
    const { code, stderr } = await ended(start(...args));
    expect(code).toBe(2);
    expect(stderr).toMatch(/--config|--nope|\/nowhere\/edge\.yaml:1:1: /);
  });

  it.each(["SIGTERM", "SIGINT"] as const)("says where it serves, and ends with 0 on %s", async (signal) => {
    const child = start("--config", file(free));
    const end = ended(child);
    const { http, nodes, admin } = await ready(child);
    expect(nodes).toMatch(/^127\.0\.0\.1:\d+$/);
    expect((await fetch(`${admin}/healthz`)).status).toBe(200);
    expect(await (await fetch(`${admin}/api/snapshot`)).json()).toMatchObject({
      edge: { name: "e", mode: "legacy" },
      nodes: [],
      streams: 0,
    });
    expect((await fetch(`${http}/v1/models`)).status).toBe(200);
    child.kill(signal);
    const { code, stderr } = await end;
    expect(code).toBe(0);
    const lines = stderr.trim().split("\n");
    expect(lines.map((line): unknown => JSON.parse(line))).toContainEqual(
      expect.objectContaining({ level: "info", msg: "shutting down", reason: signal }),
    );
    expect(stderr).not.toContain("open handles");
  });

  it("names the key of an address that is taken, and leaves nothing open", async () => {
    const taken = createServer().listen(0, "127.0.0.1");
    await once(taken, "listening");
    const address = taken.address();
    const port = typeof address === "object" ? address?.port : 0;
    const path = file(free.replace("admin: { port: 0 }", `admin: { port: ${port} }`));
    const { code, stdout, stderr } = await ended(start("--config", path));
    taken.close();
    expect([code, stdout]).toEqual([1, ""]);
    expect(stderr).toContain(
      `edge.listen.admin: cannot listen on 127.0.0.1:${port}: another process listens there`,
    );
    expect(stderr).not.toContain("open handles");
  });
});
