import { connect } from "node:net";
import { readFile } from "node:fs/promises";
import { Agent, request } from "undici";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";

import { chunksOf } from "../support/chunks.ts";
import { jsonHeaders } from "../support/raw-http.ts";
import { MODEL, type Stack, startStack } from "../support/stack.ts";

let stack: Stack;
let agent: Agent;
beforeAll(async () => {
  stack = await startStack();
  agent = new Agent({ connections: null, pipelining: 1, headersTimeout: 0, bodyTimeout: 0 });
});
afterEach(() => stack.idle());
afterAll(async () => {
  await agent.destroy();
  await stack[Symbol.asyncDispose]();
});

/** Reads a paced stream to its end; how many chunks it had. */
async function readPaced(tokens: number, perSecond: number): Promise<number> {
  const { body } = await request(`${stack.http}/v1/chat/completions`, {
    method: "POST",
    dispatcher: agent,
    headers: jsonHeaders(stack.apiKey),
    body: JSON.stringify({
      model: MODEL,
      stream: true,
      messages: [{ role: "user", content: "small" }],
      iop_test: { tokens, tokens_per_second: perSecond },
    }),
  });
  let chunks = 0;
  for await (const chunk of chunksOf(body)) if (chunk.length > 0) chunks++;
  return chunks;
}

describe("streams that share a link", () => {
  test("a client that never reads stalls only its own stream, at the window, and memory stays flat", async () => {
    const { hostname, port } = new URL(stack.http);
    const body = JSON.stringify({
      model: MODEL,
      stream: true,
      messages: [{ role: "user", content: "endless" }],
      iop_test: { chunks: 2_000_000, chunk_bytes: 1_000 },
    });
    const before = await residentBytes(stack.edge.pid);
    const stalled = connect({ host: hostname, port: Number(port) });
    stalled.pause();
    stalled.write(
      `POST /v1/chat/completions HTTP/1.1\r\nhost: ${hostname}:${port}\r\nauthorization: Bearer ${stack.apiKey}\r\n` +
        `content-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
    );
    await stack.provider.when((state) => state.active_requests === 1, AbortSignal.timeout(5_000));

    // Others go on beside it, for longer than a heartbeat's wait.
    for (let round = 0; round < 3; round++) expect(await readPaced(60, 30)).toBeGreaterThan(30);
    const [edge, node] = [await residentBytes(stack.edge.pid), await residentBytes(stack.node.pid)];
    for (let round = 0; round < 2; round++) await readPaced(60, 30);
    // Neither grows while 2 GB wait behind the one that does not read.
    expect((await residentBytes(stack.edge.pid)) - edge).toBeLessThan(32e6);
    expect((await residentBytes(stack.node.pid)) - node).toBeLessThan(32e6);
    expect(edge - before).toBeLessThan(64e6);
    expect(stack.provider.state().active_requests).toBe(1);
    expect((await stack.snapshot()).nodes[0]?.connected).toBe(true);

    const left = performance.now();
    stalled.destroy();
    await stack.provider.when((state) => state.active_requests === 0, AbortSignal.timeout(5_000));
    expect(performance.now() - left).toBeLessThan(1_000);
  }, 60_000);
});

async function residentBytes(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, "utf8");
  return Number(/VmRSS:\s+(\d+) kB/.exec(status)?.[1] ?? Number.NaN) * 1024;
}
