import { execa } from "execa";
import { createServer } from "node:net";
import { Agent, request } from "undici";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";

import { chunksOf } from "../support/chunks.ts";
import { jsonHeaders } from "../support/raw-http.ts";
import { MODEL, startStack } from "../support/stack.ts";

const MBIT = 1_000_000 / 8;

describe("heartbeats", () => {
  test("hold through a saturated link of 20 Mbit/s, with a round trip under 1 s", async () => {
    await using stack = await startStack({ proxied: true });
    await using resources = new AsyncDisposableStack();
    const agent = resources.adopt(new Agent({ connections: null }), (one) => one.destroy());
    stack.link?.rate(20 * MBIT);
    const abort = new AbortController();
    let received = 0;
    const readers = Array.from({ length: 8 }, async () => {
      try {
        const { body } = await request(`${stack.http}/v1/chat/completions`, {
          method: "POST",
          dispatcher: agent,
          signal: abort.signal,
          headers: jsonHeaders(stack.apiKey),
          body: JSON.stringify({
            model: MODEL,
            stream: true,
            messages: [{ role: "user", content: "fill it" }],
            iop_test: { chunks: 1_000_000, chunk_bytes: 4_000 },
          }),
        });
        for await (const chunk of chunksOf(body)) received += chunk.length;
      } catch (error) {
        if (!abort.signal.aborted) throw error;
      }
    });

    const trips = new Set<number>();
    const end = performance.now() + 12_000;
    while (performance.now() < end) {
      const [node] = (await stack.snapshot()).nodes;
      expect(node?.connected).toBe(true);
      if (node?.round_trip_ms !== undefined) trips.add(node.round_trip_ms);
      await new Promise<void>((resolve) => {
        setTimeout(resolve, 100);
      });
    }
    abort.abort();
    await Promise.all(readers);
    const sorted = [...trips].toSorted((a, b) => a - b);
    console.info(
      `saturated 20 Mbit/s: ${(received / 12 / MBIT).toFixed(1)} Mbit/s of bodies, ` +
        `heartbeat round trips ${sorted.map((trip) => trip.toFixed(0)).join(", ")} ms`,
    );
    expect(received).toBeGreaterThan(12 * 15 * MBIT);
    expect(trips.size).toBeGreaterThanOrEqual(4);
    expect(sorted.at(-1)).toBeLessThan(1_000);
    stack.link?.rate(undefined);
    await stack.idle();
    expect(stack.node.log()).not.toContain("heartbeat_timeout");
    expect(stack.edge.log()).not.toContain("heartbeat_timeout");
  }, 60_000);

  test("hold through a saturated link of 1 Mbit/s with a large body under way, slower than a heartbeat may take", async () => {
    await using stack = await startStack({ proxied: true });
    await using resources = new AsyncDisposableStack();
    const agent = resources.adopt(new Agent({ connections: null }), (one) => one.destroy());
    stack.link?.rate(MBIT);
    const body = "x".repeat(8 * 1024 * 1024);
    const abort = new AbortController();
    const upload = request(`${stack.http}/v1/chat/completions`, {
      method: "POST",
      dispatcher: agent,
      signal: abort.signal,
      headers: jsonHeaders(stack.apiKey),
      body: JSON.stringify({ model: MODEL, messages: [{ role: "user", content: body }] }),
    });
    const ended = expect(upload).rejects.toThrow(/abort/i);
    await stack.until(({ streams }) => streams === 1);
    const before = stack.link?.bytes ?? 0;
    const end = performance.now() + 9_000;
    while (performance.now() < end) {
      const { nodes, streams } = await stack.snapshot();
      expect([nodes[0]?.connected, streams]).toEqual([true, 1]);
      await new Promise<void>((resolve) => {
        setTimeout(resolve, 100);
      });
    }
    // It was saturated.
    expect((stack.link?.bytes ?? 0) - before).toBeGreaterThan(9 * 0.9 * MBIT);
    abort.abort();
    await ended;
    stack.link?.rate(undefined);
    await stack.idle();
    expect(stack.node.log() + stack.edge.log()).not.toMatch(/heartbeat_timeout|nothing received/);
  }, 40_000);

  test("a process that was blocked for 6.5 s does not declare its peer dead", async () => {
    // A peer that beats every 2 s and never gives up.
    const beat = Buffer.from([0, 0, 0, 4, 0x2a, 0x02, 0x08, 0x01]);
    await using server = createServer((socket) => {
      const timer = setInterval(() => socket.write(beat), 2_000);
      socket.on("error", () => {});
      socket.on("close", () => clearInterval(timer));
    });
    await new Promise<void>((resolve) => {
      server.listen(0, "127.0.0.1", resolve);
    });
    const address = server.address();
    const port = typeof address === "object" && address !== null ? address.port : 0;
    const program = fileURLToPath(new URL("blocked-peer.ts", import.meta.url));
    const { stdout } = await execa(process.execPath, ["--conditions=@iop/source", program, String(port)], {
      timeout: 30_000,
    });
    expect(stdout.trim().split("\n")).toEqual(["blocked", "alive"]);
  }, 40_000);
});
