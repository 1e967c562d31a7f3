import { readFile, readdir, readlink } from "node:fs/promises";
import { afterEach, describe, expect, test } from "vitest";

import { MODEL, type Stack, startStack } from "../support/stack.ts";

let stack: Stack;
afterEach(() => stack[Symbol.asyncDispose]());

/** TCP ports that a process listens on, as the kernel says. */
async function listening(pid: number): Promise<number[]> {
  const files = await readdir(`/proc/${pid}/fd`);
  const targets = await Promise.all(files.map((fd) => readlink(`/proc/${pid}/fd/${fd}`).catch(() => "")));
  const own = new Set(targets.map((target) => /^socket:\[(\d+)\]$/.exec(target)?.[1]));
  const tables = await Promise.all(
    ["tcp", "tcp6"].map((table) => readFile(`/proc/${pid}/net/${table}`, "utf8")),
  );
  return tables
    .flatMap((table) => table.split("\n").slice(1))
    .map((line) => line.trim().split(/\s+/))
    .filter((fields) => fields[3] === "0A" && own.has(fields[9]))
    .map((fields) => Number.parseInt(fields[1]?.split(":")[1] ?? "", 16));
}

describe.skipIf(process.platform !== "linux")("the Node's metrics listener", () => {
  test("is not there unless it is asked for: a Node opens no port", async () => {
    stack = await startStack();
    expect(stack.node.ready).toEqual({ node: "node-1" });
    expect(await listening(stack.node.pid)).toEqual([]);
  });

  test("serves, where it is enabled, what the Node does", async () => {
    stack = await startStack({ nodeOptions: { metrics: { enabled: true, port: 0 } } });
    const url = stack.node.ready["metrics"] ?? "";
    expect(await listening(stack.node.pid)).toEqual([Number(new URL(url).port)]);
    expect(await (await fetch(`${url}/healthz`)).json()).toEqual({ status: "ok", connected: true });
    const response = await fetch(`${stack.http}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json", authorization: `Bearer ${stack.apiKey}` },
      body: JSON.stringify({ model: MODEL, messages: [{ role: "user", content: "the prompt" }] }),
    });
    await response.text();
    await stack.idle();
    const text = await (await fetch(`${url}/metrics`)).text();
    expect(text).toContain("\niop_node_connected 1\n");
    expect(text).toContain('\niop_node_provider_health{provider="p1"} 1\n');
    expect(text).toContain('\niop_node_provider_in_flight{provider="p1"} 0\n');
    expect(text).toContain('\niop_node_tunnels_total{provider="p1",outcome="completed",code=""} 1\n');
    expect(text).not.toContain("the prompt");
    expect(await stack.node.stop()).toEqual({ code: 0 });
    expect(stack.node.log()).not.toContain("open handles");
  });
});
