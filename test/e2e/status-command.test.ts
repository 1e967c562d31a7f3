import { execa } from "execa";
import { createServer } from "node:http";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { afterEach, describe, expect, test } from "vitest";

import { MODEL, type Stack, startStack } from "../support/stack.ts";

const IOP = fileURLToPath(new URL("../../reference/cli/bin/iop.js", import.meta.url));
const ADMIN_KEY = "the-admin-key";

let stack: Stack | undefined;
afterEach(async () => {
  await stack?.[Symbol.asyncDispose]();
  stack = undefined;
});

function iop(args: readonly string[], env: Readonly<Record<string, string>> = {}) {
  return execa(process.execPath, [IOP, ...args], { env, reject: false, stdin: "ignore", timeout: 20_000 });
}

async function startAndAddress(admin: Readonly<Record<string, unknown>> = {}): Promise<string> {
  stack = await startStack({
    capacity: 4,
    edge: { listen: { nodes: { port: 0 }, http: { port: 0 }, admin: { port: 0, ...admin } } },
    edgeEnv: { IOP_TEST_ADMIN_KEY: ADMIN_KEY },
  });
  return stack.edge.ready["admin"] ?? "";
}

/** A stream that goes on until it is aborted. */
async function stream(of: Stack, signal: AbortSignal): Promise<void> {
  await fetch(`${of.http}/v1/chat/completions`, {
    method: "POST",
    signal,
    headers: { "content-type": "application/json", authorization: `Bearer ${of.apiKey}` },
    body: JSON.stringify({
      model: MODEL,
      stream: true,
      messages: [{ role: "user", content: "the prompt" }],
      iop_test: { tokens: 10_000, tokens_per_second: 20 },
    }),
  });
}

describe("iop status", () => {
  test("prints a table, and with --json the snapshot", async () => {
    const admin = await startAndAddress();
    const table = await iop(["status", "--admin", admin]);
    expect([table.exitCode, table.stderr]).toEqual([0, ""]);
    expect(table.stdout.split("\n").map((line) => line.replace(/(up|for) .*?(,|$)/, "$1 …,"))).toEqual([
      expect.stringMatching(/^Edge edge-1 \(legacy\), up …, 1 of 1 nodes, 0 in flight, 0 waiting$/),
      "",
      "NODE / PROVIDER  STATE        IN USE",
      expect.stringMatching(/^node-1 {11}connected {16}for …/),
      "  p1             ok           0 of 4",
      "",
      "MODEL            LIVE         WAITING",
      "demo             1 of 1       0",
    ]);
    const json = await iop(["status", "--json", "--admin", admin]);
    expect(json.exitCode).toBe(0);
    const snapshot = JSON.parse(json.stdout);
    expect(snapshot).toMatchObject({
      edge: { name: "edge-1" },
      nodes: [{ name: "node-1", connected: true, providers: [{ id: "p1", capacity: { configured: 4 } }] }],
      totals: { relayed_bytes: { request: 0, response: 0 } },
    });
  });

  test("--watch shows what changes, until Ctrl-C, and through an Edge that is away", async () => {
    const admin = await startAndAddress();
    if (stack === undefined) throw new Error("no stack");
    const watching = iop(["status", "--watch", "--admin", admin]);
    let text = "";
    let wake: (() => void) | undefined;
    const collect = (chunk: unknown): void => {
      text += String(chunk);
      wake?.();
    };
    let ended = false;
    watching.stdout.on("close", () => {
      ended = true;
      wake?.();
    });
    watching.stdout.on("data", collect);
    watching.stderr.on("data", collect);
    const shows = async (pattern: RegExp): Promise<void> => {
      while (!pattern.test(text)) {
        if (ended) throw new Error(`it ended: ${text}`);
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      }
      text = "";
    };
    await shows(/p1 +ok +0 of 4/);
    const leave = new AbortController();
    await stream(stack, leave.signal);
    await shows(/1 in flight[^]*p1 +ok +1 of 4/);
    leave.abort();
    await shows(/0 in flight[^]*p1 +ok +0 of 4/);
    stack.node.signal("SIGKILL");
    await shows(/0 of 1 nodes[^]*node-1 +offline[^]*the node is not connected/);
    stack.edge.signal("SIGKILL");
    await shows(/does not answer/);
    watching.kill("SIGINT");
    expect((await watching).exitCode).toBe(0);
  });

  // util-linux's `script` gives it a terminal.
  test.skipIf(process.platform !== "linux")("--watch leaves the terminal as it was", async () => {
    const admin = await startAndAddress();
    const command = `exec ${process.execPath} ${IOP} status --watch --admin ${admin}`;
    const terminal = execa("script", ["-qefc", command, "/dev/null"], { reject: false, timeout: 20_000 });
    let screen = "";
    const shown = Promise.withResolvers<void>();
    terminal.stdout.on("data", (chunk: unknown) => {
      screen += String(chunk);
      if (screen.includes("p1")) shown.resolve();
    });
    await shown.promise;
    expect(screen.startsWith("\u001b[?1049h\u001b[?25l\u001b[H")).toBe(true);
    terminal.stdin.write("\u0003");
    expect((await terminal).exitCode).toBe(0);
    expect(screen.replace(/\^C/, "").endsWith("\u001b[?25h\u001b[?1049l")).toBe(true);
  });

  test("says what it cannot do, with an exit code for each reason", async () => {
    const admin = await startAndAddress({ key: { env: "IOP_TEST_ADMIN_KEY" } });
    expect((await iop(["status", "--admin", admin])).exitCode).toBe(3);
    const env = { MY_KEY: "wrong", EMPTY: "" };
    const wrong = await iop(["status", "--watch", "--admin", admin, "--key-env", "MY_KEY"], env);
    expect([wrong.exitCode, wrong.stderr]).toEqual([3, expect.stringContaining("--key-env")]);
    expect(wrong.stderr).not.toContain("wrong");
    const right = await iop(["status", "--admin", admin, "--key-env", "MY_KEY"], { MY_KEY: ADMIN_KEY });
    expect([right.exitCode, right.stdout]).toEqual([0, expect.stringContaining("node-1")]);
    for (const args of [
      ["--key-env", "EMPTY"],
      ["--admin", "nonsense"],
      ["--admin", "file:///x"],
      ["--nope"],
    ])
      expect((await iop(["status", ...args], env)).exitCode).toBe(2);

    const other = createServer((_, response) => response.end("{}")).listen(0, "127.0.0.1");
    await once(other, "listening");
    const address = other.address();
    const port = typeof address === "object" ? address?.port : 0;
    const stranger = await iop(["status", "--admin", `http://127.0.0.1:${port}`]);
    other.closeAllConnections();
    other.close();
    await once(other, "close");
    expect([stranger.exitCode, stranger.stderr]).toEqual([
      1,
      expect.stringContaining("not the admin address"),
    ]);
  });
});
