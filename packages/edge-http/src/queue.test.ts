import { createHash } from "node:crypto";
import { EdgeError } from "@iop/edge-core";
import { describe, expect, it } from "vitest";
import { errorOf, type Served, serve } from "./testing/served.ts";

const BODY = '{"model":"m"}';

function sha256(key: string): string {
  return createHash("sha256").update(key).digest("hex");
}

/** What the Edge is asked for a request with these headers and this body. */
async function submissionOf(
  { ask, edge }: Served,
  headers: Readonly<Record<string, string>>,
  body = BODY,
): Promise<Parameters<typeof edge.submitProviderTunnel>[0]> {
  const submitted = edge.next();
  const answer = ask({ headers, body });
  const { submission, tunnel } = await submitted;
  tunnel.start([["content-length", "0"]]);
  tunnel.end();
  await answer;
  return submission;
}

/** The headers of an answer that this surface has added. */
function own(headers: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(headers).filter(([name]) => name.startsWith("x-iop-") && name !== "x-iop-request-id"),
  );
}

describe("what the queue is told", () => {
  it("is the priority of the caller's key", async () => {
    const served = await serve({
      access: {
        apiKeys: [
          { name: "batch", sha256: sha256("one"), models: ["*"], priority: -5 },
          { name: "people", sha256: sha256("two"), models: ["*"] },
        ],
      },
    });
    expect(await submissionOf(served, { authorization: "Bearer one" })).toMatchObject({ priority: -5 });
    expect(await submissionOf(served, { authorization: "Bearer two" })).toMatchObject({ priority: 0 });
    await expect(
      serve({ access: { apiKeys: [{ name: "a", sha256: sha256("a"), models: [], priority: 0.5 }] } }),
    ).rejects.toMatchObject({ code: "invalid_config" });
  });

  it("is the length of the input, from that of the body", async () => {
    const body = `{"model":"m","x":"${"x".repeat(4000)}"}`;
    const submission = await submissionOf(await serve(), {}, body);
    expect(submission.inputTokens).toBe(Math.ceil(body.length / 4));
  });

  it.each<[string, Record<string, string>, Record<string, unknown>, string | undefined]>([
    ["nothing", {}, {}, undefined],
    ["any client's header", { "x-session-id": "s" }, {}, "s"],
    ["Codex's header", { session_id: "s" }, {}, "s"],
    ["Claude Code's header", { "x-claude-code-session-id": "s" }, {}, "s"],
    ["the body", {}, { prompt_cache_key: "ü" }, "ü"],
    ["both", { "session-id": "s" }, { prompt_cache_key: "k" }, "s"],
    ["a header that is too long", { "x-session-id": "s".repeat(257) }, { prompt_cache_key: "k" }, "k"],
    ["a key that is too long", {}, { prompt_cache_key: "k".repeat(2000) }, undefined],
    ["no text", {}, { prompt_cache_key: 1 }, undefined],
  ])("is the session: %s", async (_, headers, more, session) => {
    const body = JSON.stringify({ model: "m", ...more });
    expect((await submissionOf(await serve(), headers, body)).session).toBe(session);
  });
});

describe("what the client is told", () => {
  it("is who served it", async () => {
    const { ask, edge } = await serve();
    const submitted = edge.next();
    const answer = ask({ body: BODY });
    (await submitted).tunnel.start();
    (await submitted).tunnel.end();
    expect(own((await answer).headers)).toEqual({
      "x-iop-node": "node-1",
      "x-iop-provider": "p",
      "x-iop-target": "served",
    });
  });

  it("is that in a form that HTTP carries", async () => {
    const { ask, edge } = await serve();
    const submitted = edge.next();
    const answer = ask({ body: BODY });
    const { tunnel } = await submitted;
    Object.assign(tunnel, { dispatch: { ...tunnel.dispatch, target: "modèle:\r\nx: \ud800" } });
    tunnel.start();
    tunnel.end();
    expect((await answer).headers["x-iop-target"]).toBe("mod%C3%A8le%3A%0D%0Ax%3A%20%EF%BF%BD");
  });

  it("is nothing of the kind where that is switched off", async () => {
    const { ask, edge } = await serve({ attributionHeaders: false });
    const submitted = edge.next();
    const answer = ask({ body: BODY });
    (await submitted).tunnel.start();
    (await submitted).tunnel.end();
    expect(own((await answer).headers)).toEqual({});
  });

  it("is how it waited", async () => {
    const { ask, edge, reported } = await serve({ attributionHeaders: false });
    edge.queue = { position: 3, waitedMs: 41.7 };
    const submitted = edge.next();
    const answer = ask({ body: BODY });
    (await submitted).tunnel.start();
    (await submitted).tunnel.end();
    expect(own((await answer).headers)).toEqual({
      "x-iop-queue-reason": "busy",
      "x-iop-queue-position": "3",
      "x-iop-queue-wait-ms": "42",
    });
    expect(await reported(1)).toMatchObject([{ outcome: "completed", queuedMs: 41.7 }]);
  });

  it.each([
    ["queue_timeout", 429, "1"],
    ["unavailable", 503, "2"],
  ] as const)("is how it waited in vain: %s", async (code, status, retryAfter) => {
    const { ask, edge, reported } = await serve();
    edge.mode = new EdgeError(code, "no luck", { queue: { position: 2, waitedMs: 1000 } });
    const answer = await ask({ body: BODY });
    expect(answer).toMatchObject({ status, headers: { "retry-after": retryAfter } });
    expect(errorOf(answer)).toMatchObject({ error: { code, message: "no luck" } });
    expect(own(answer.headers)).toEqual({
      "x-iop-queue-reason": code,
      "x-iop-queue-position": "2",
      "x-iop-queue-wait-ms": "1000",
    });
    expect(await reported(1)).toMatchObject([{ outcome: "refused", code, queuedMs: 1000 }]);
  });

  it("is that the queue is full", async () => {
    const { ask, edge, reported } = await serve();
    edge.mode = "queue_full";
    const answer = await ask({ body: '{"model":"m","stream":true}' });
    expect(answer).toMatchObject({
      status: 429,
      headers: { "retry-after": "1", "content-type": "application/json" },
    });
    expect(own(answer.headers)).toEqual({ "x-iop-queue-reason": "queue_full" });
    expect(await reported(1)).toMatchObject([{ outcome: "refused", queuedMs: undefined }]);
  });
});

it("reports a client that left only once it is known whether its request was dispatched", async () => {
  const { edge, raw, reported } = await serve();
  const submitted = edge.next();
  const client = raw();
  client.post(BODY);
  await submitted;
  await client.destroy();
  expect(await reported(1)).toMatchObject([
    { outcome: "client_closed", status: 0, dispatch: { nodeId: "node-1" } },
  ]);
});
