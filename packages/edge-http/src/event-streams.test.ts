import { once } from "node:events";
import { describe, expect, it } from "vitest";
import { serveAdmin } from "./testing/admin-client.ts";

/** Longer than what is passed on of a reason. */
const LONG = "x".repeat(2_000);

describe("the event stream", () => {
  it("frames events, with ids, and without what is not for everybody's eyes", async () => {
    const { edge, subscribe } = await serveAdmin();
    const reader = await subscribe();
    expect(reader.response.headers).toMatchObject({
      "content-type": "text/event-stream",
      "cache-control": "no-store",
      "x-accel-buffering": "no",
    });
    edge.node({ type: "disconnected", code: "connection_lost", reason: "line one\nline two\r\n\nid: 9" });
    edge.run({
      principal: "alice",
      status: 200,
      queuedMs: 0.26,
      attempts: 2,
      firstByteMs: 1.26,
      usage: { inputTokens: 3, cachedInputTokens: 0 },
    });
    await reader.until(({ events }) => events.length === 2);
    expect(reader.text.startsWith("retry: 2000\n\nid: 1\nevent: node\ndata: {")).toBe(true);
    expect(reader.events).toEqual([
      {
        id: "1",
        event: "node",
        data: {
          node: "n",
          type: "disconnected",
          code: "connection_lost",
          reason: "line one\nline two\r\n\nid: 9",
          at: "2026-12-01T00:00:00.000Z",
        },
      },
      {
        id: "2",
        event: "run",
        data: {
          request_id: "r",
          model: "m",
          operation: "chat_completions",
          principal: "alice",
          node: "n",
          provider: "p",
          target: "t",
          outcome: "completed",
          status: 200,
          usage: { input_tokens: 3, cached_input_tokens: 0 },
          queued_ms: 0.3,
          attempts: 2,
          first_byte_ms: 1.3,
          duration_ms: 12.3,
          at: "2026-12-01T00:00:00.000Z",
        },
      },
    ]);
  });

  it("shows by a gap in the ids what a reader who came back has missed", async () => {
    const { edge, subscribe, responses } = await serveAdmin();
    const first = await subscribe();
    edge.node();
    await first.until(({ events }) => events.length === 1);
    first.response.destroy();
    if (responses[0] !== undefined) await once(responses[0], "close");
    edge.node();
    const second = await subscribe();
    edge.node();
    await second.until(({ events }) => events.length === 1);
    expect(second.events[0]?.id).toBe("3");
  });

  it("says again and again that it lives", async () => {
    const { subscribe } = await serveAdmin({ keepAliveMs: 10 });
    const reader = await subscribe();
    await reader.until(({ text }) => text.split(": keep-alive\n\n").length > 3);
    expect(reader.events).toEqual([]);
  });

  it("bounds what a Node has written", async () => {
    const { edge, subscribe } = await serveAdmin();
    const reader = await subscribe();
    edge.node({ reason: LONG, code: LONG });
    await reader.until(({ events }) => events.length === 1);
    expect(reader.text.length).toBeLessThan(1_400);
  });
});

describe("a slow subscriber", () => {
  it("is dropped, told how many it missed, and harms nobody", async () => {
    const subscriberBytes = 65_536;
    const { edge, subscribe, responses, ask } = await serveAdmin({ subscriberBytes });
    const slow = await subscribe();
    slow.response.pause();
    const quick = await subscribe();
    const count = 30_000;
    let longestQueue = 0;
    for (let sent = 0; sent < count; sent++) {
      edge.node({ reason: LONG });
      longestQueue = Math.max(longestQueue, responses[0]?.writableLength ?? 0);
      // The quick one reads in between, as it would.
      if (sent % 50 === 49) await quick.until(({ text }) => text.includes(`id: ${sent + 1}\n`));
      if (sent % 50 === 49) quick.text = quick.text.slice(-2_000);
    }
    // Chunked encoding adds some bytes to each event.
    expect(longestQueue).toBeLessThan(2 * subscriberBytes);
    expect(longestQueue).toBeGreaterThan(subscriberBytes / 2);
    slow.response.resume();
    await slow.end();
    const last = slow.events.at(-1);
    const received = slow.events.length - 1;
    expect(last).toEqual({ id: undefined, event: "dropped", data: { missed: count - received } });
    expect(slow.events.at(-2)?.id).toBe(String(received));
    expect((await ask("/healthz")).status).toBe(200);
  });

  it("is cut off where it does not read at all", async () => {
    const { edge, subscribe, responses } = await serveAdmin({
      maxSubscribers: 1,
      subscriberBytes: 65_536,
      subscriberPatienceMs: 50,
    });
    const slow = await subscribe();
    slow.response.pause();
    const [response] = responses;
    if (response === undefined) throw new Error("no response");
    const closed = once(response, "close");
    for (let sent = 0; sent < 30_000 && response.writableLength < 65_000; sent++) {
      edge.node({ reason: LONG });
      if (sent % 50 === 49) await new Promise(setImmediate);
    }
    for (let sent = 0; sent < 200; sent++) edge.node({ reason: LONG });
    await closed;
    // Its place is free.
    const next = await subscribe();
    expect(next.response.statusCode).toBe(200);
    slow.response.destroy();
  });
});

describe("the number of subscribers", () => {
  it("is bounded; who leaves makes room", async () => {
    const { ask, subscribe, responses } = await serveAdmin({ maxSubscribers: 2 });
    const first = await subscribe();
    await subscribe();
    const refused = await ask("/api/events");
    expect([refused.status, refused.headers["retry-after"], JSON.parse(refused.body).error.code]).toEqual([
      503,
      "5",
      "too_many_subscribers",
    ]);
    const [response] = responses;
    if (response === undefined) throw new Error("no response");
    const closed = once(response, "close");
    first.response.destroy();
    await closed;
    expect((await subscribe()).response.statusCode).toBe(200);
  });
});

describe("the end", () => {
  it("comes with the signal: streams end whole, no listener stays, nobody comes in", async () => {
    const end = new AbortController();
    const { edge, subscribe, ask } = await serveAdmin({ signal: end.signal });
    const reader = await subscribe();
    edge.node();
    expect(edge.listeners).toBe(2);
    end.abort();
    await reader.end();
    expect(reader.response.complete).toBe(true);
    expect(reader.events).toHaveLength(1);
    expect(edge.listeners).toBe(0);
    expect((await ask("/api/events")).status).toBe(503);
  });
});
