import { getEventListeners } from "node:events";
import { create } from "@bufbuild/protobuf";
import {
  ProviderHealth,
  ProviderTunnelFrame_Kind as Kind,
  ProviderTunnelFrameSchema,
  receiveBody,
} from "@iop/wire";
import { describe, expect, test } from "vitest";

import { EdgeWorld, brief, nodeRecord, provider } from "../test/edge-world.ts";
import { HandDrivenNode, sendBody, sendEnd, sendError, sendStart } from "../test/hand-driven-node.ts";

async function connected(
  options: ConstructorParameters<typeof EdgeWorld>[0] = {},
): Promise<{ world: EdgeWorld; node: HandDrivenNode }> {
  const world = await EdgeWorld.listening(options);
  return { world, node: await HandDrivenNode.ready(world) };
}

describe("what the Node is sent", () => {
  test("a small body in the request, joined", async () => {
    const { world, node } = await connected();
    await world.begin({
      headers: [
        ["accept", "a"],
        ["accept", "b"],
      ],
      buildBody: (target) => [Buffer.from("{"), Buffer.from(target), Buffer.from("}")],
    });
    const { request } = node.last;
    expect(request).toMatchObject({
      providerId: "p1",
      method: "POST",
      path: "/v1/chat/completions",
      operation: "chat_completions",
      target: "served",
      bodyLength: 8n,
      firstByteTimeoutMs: 1_000,
      idleTimeoutMs: 2_000,
    });
    expect(request.headers.map(({ name, value }) => `${name}: ${value}`)).toEqual(["accept: a", "accept: b"]);
    expect(Buffer.from(request.body).toString()).toBe("{served}");
    expect(request.requestId).toMatch(/^[0-9a-f-]{36}$/);
  });

  test.each([8 * 1024, 8 * 1024 + 1, 300_000])("a body of %i bytes arrives whole", async (length) => {
    const { world, node } = await connected();
    const body = Buffer.alloc(length, "abcdefg");
    await world.begin({ buildBody: () => [body.subarray(0, 1_000), body.subarray(1_000)] });
    const { stream, request } = node.last;
    expect(request.body.length).toBe(length <= 8 * 1024 ? length : 0);
    const received = await world.settled(
      receiveBody(stream, { head: request.body, lengthBytes: Number(request.bodyLength), limitBytes: 1e6 }),
    );
    expect(Buffer.compare(received, body)).toBe(0);
  });

  test("a request without a body, by another method", async () => {
    const { world, node } = await connected();
    await world.begin({ operation: "models", method: "GET", buildBody: () => [] });
    expect(node.last.request).toMatchObject({ method: "GET", path: "/v1/models", bodyLength: 0n });
  });
});

describe("what comes back", () => {
  test("status, headers, bytes, usage and end, in order; then the outcome", async () => {
    const { world, node } = await connected();
    const work = await world.begin({ principal: "alice" });
    const frames = work.frames();
    await world.clock.advance(40);
    sendStart(node.last, 201, [
      ["x-a", "1"],
      ["x-a", "2"],
    ]);
    sendBody(node.last, "hello ");
    await world.clock.settle();
    sendBody(node.last, "world");
    node.last.stream.send({
      case: "providerTunnelFrame",
      value: create(ProviderTunnelFrameSchema, {
        kind: Kind.USAGE,
        usage: { inputTokens: 5n, outputTokens: 0n, cachedInputTokens: 3n },
      }),
    });
    await world.clock.advance(10);
    sendEnd(node.last);
    const all = await world.settled(frames);
    const tunnel = await work.tunnel;
    expect(tunnel.dispatch).toEqual({
      nodeId: "n1",
      providerId: "p1",
      target: "served",
      usageAttribution: "provider",
    });
    expect(tunnel.queue).toEqual({ position: 0, waitedMs: 0 });
    expect(brief(all)).toEqual(["start 201", "body hello ", "body world", "usage", "end"]);
    expect(all[0]).toMatchObject({
      headers: [
        ["x-a", "1"],
        ["x-a", "2"],
      ],
    });
    const usage = { inputTokens: 5, outputTokens: 0, cachedInputTokens: 3 };
    expect(all[3]).toEqual({ kind: "usage", usage });
    expect(world.runEvents).toEqual([
      {
        requestId: node.last.request.requestId,
        model: "m",
        operation: "chat_completions",
        principal: "alice",
        dispatch: tunnel.dispatch,
        queuedMs: 0,
        attempts: 1,
        outcome: "completed",
        status: 201,
        usage,
        firstByteMs: 40,
        durationMs: 50,
        at: "1970-01-01T00:00:00.050Z",
      },
    ]);
    expect(world.provider().in_flight.normal).toBe(0);
    expect(world.edge.snapshot().streams).toBe(0);
    expect(await work.frames()).toEqual([]);
  });

  test("the place is free when the provider is done, however slowly the answer is read", async () => {
    const { world, node } = await connected();
    const work = await world.begin();
    sendStart(node.last);
    sendBody(node.last, "x");
    sendEnd(node.last);
    await world.clock.settle();
    expect(world.provider().in_flight.normal).toBe(0);
    expect(world.runEvents).toEqual([]);
    await world.clock.advance(1_000);
    expect(brief(await work.frames())).toEqual(["start 200", "body x", "end"]);
    expect(world.runEvents.map(({ outcome, durationMs }) => [outcome, durationMs])).toEqual([
      ["completed", 0],
    ]);
  });

  test("an error of the Node's, before and after the start", async () => {
    const { world, node } = await connected();
    const early = await world.begin();
    sendError(node.last, "first_byte_timeout", "nothing for 1000 ms");
    expect(await world.settled(early.frames())).toEqual([
      { kind: "error", code: "first_byte_timeout", message: "nothing for 1000 ms" },
    ]);
    const late = await world.begin();
    sendStart(node.last);
    sendError(node.last, "");
    expect(brief(await world.settled(late.frames()))).toEqual(["start 200", "error provider_error"]);
    expect(world.runEvents.map(({ outcome, code }) => `${outcome} ${code}`)).toEqual([
      "error first_byte_timeout",
      "error provider_error",
    ]);
    expect(world.provider().in_flight.normal).toBe(0);
  });

  test.each([
    ["a body before the start", (node: HandDrivenNode) => sendBody(node.last, "x"), true],
    ["an end without a start", (node: HandDrivenNode) => sendEnd(node.last), false],
    [
      "a second start",
      (node: HandDrivenNode) => {
        sendStart(node.last);
        sendStart(node.last);
      },
      true,
    ],
    [
      "a header that HTTP cannot carry",
      (node: HandDrivenNode) => sendStart(node.last, 200, [["x-a", "1\r\nset-cookie: b"]]),
      true,
    ],
    ["an impossible status", (node: HandDrivenNode) => sendStart(node.last, 0), true],
  ])("%s ends that tunnel only", async (_what, misbehave, stillRuns) => {
    const { world, node } = await connected();
    const work = await world.begin();
    const frames = work.frames();
    misbehave(node);
    await world.clock.settle();
    const ends = (await frames).filter(({ kind }) => kind === "end" || kind === "error");
    expect(brief(ends)).toEqual(["error protocol_error"]);
    // The Node is told to stop and confirms.
    expect(node.last.stream.signal.aborted).toBe(stillRuns);
    sendError(node.last, "cancelled");
    await world.clock.settle();
    expect(world.provider().in_flight.normal).toBe(0);
    expect(world.runEvents.map(({ outcome, code }) => `${outcome} ${code}`)).toEqual([
      "error protocol_error",
    ]);
    const other = await world.begin();
    sendStart(node.last);
    sendEnd(node.last);
    expect(brief(await world.settled(other.frames()))).toEqual(["start 200", "end"]);
  });

  test("a lost connection is exactly one error, after what had been read", async () => {
    const { world, node } = await connected();
    const work = await world.begin();
    const frames = work.frames();
    sendStart(node.last);
    sendBody(node.last, "x");
    await world.clock.settle();
    world.transport.links[0]?.cut();
    expect(brief(await world.settled(frames))).toEqual(["start 200", "body x", "error node_disconnected"]);
    expect(await work.frames()).toEqual([]);
    expect(world.runEvents.map(({ outcome, code }) => `${outcome} ${code}`)).toEqual([
      "error node_disconnected",
    ]);
    expect(world.provider().in_flight.normal).toBe(0);
    expect(world.edge.snapshot().streams).toBe(0);
  });
});

describe("who is chosen", () => {
  const nodes = [
    nodeRecord("n1", "token-1"),
    nodeRecord("n2", "token-2", [provider("p2", { usageAttribution: "team" })]),
  ];
  const models = [
    {
      key: "m",
      candidates: [
        { node: "n1", provider: "p1", target: "one" },
        { node: "n2", provider: "p2", target: "two" },
      ],
    },
  ];

  test("the least loaded live candidate with room; the dispatch says who", async () => {
    const world = await EdgeWorld.listening({ nodes, models });
    const first = await HandDrivenNode.ready(world);
    const second = await HandDrivenNode.dial(world);
    await second.register({ token: "token-2", nodeName: "n2" });
    await second.becomeReady({ p2: 0 }, { nodeId: "n2" });
    const served: string[] = [];
    for (let count = 0; count < 4; count++) {
      const work = await world.begin();
      for (const { opened } of [first, second]) for (const tunnel of opened) sendStart(tunnel);
      served.push((await world.settled(work.tunnel)).dispatch.target);
    }
    expect(served).toEqual(["one", "two", "one", "two"]);
    expect(second.opened.map(({ request }) => request.target)).toEqual(["two", "two"]);
    // Both are full: the next waits, and gets the place that becomes free.
    const waiting = await world.begin();
    expect([first.opened.length, second.opened.length, waiting.state]).toEqual([2, 2, "pending"]);
    sendEnd(first.last);
    await world.clock.settle();
    sendStart(first.last);
    expect((await world.settled(waiting.tunnel)).queue).toEqual({ position: 1, waitedMs: 0 });
    expect(first.opened).toHaveLength(3);
  });

  test("a node that is gone is passed over", async () => {
    const world = await EdgeWorld.listening({ nodes, models });
    const second = await HandDrivenNode.dial(world);
    await second.register({ token: "token-2", nodeName: "n2" });
    await second.becomeReady({ p2: 0 }, { nodeId: "n2" });
    const work = await world.begin();
    sendStart(second.last);
    expect((await world.settled(work.tunnel)).dispatch).toEqual({
      nodeId: "n2",
      providerId: "p2",
      target: "two",
      usageAttribution: "team",
    });
  });

  test("two models that share a provider share its capacity", async () => {
    const world = await EdgeWorld.listening({
      nodes: [nodeRecord("n1", "token-1", [provider("p1", { capacity: 1 })])],
      models: ["a", "b"].map((key) => ({ key, candidates: [{ node: "n1", provider: "p1", target: key }] })),
    });
    const node = await HandDrivenNode.ready(world);
    const work = await world.begin({ model: "a" });
    const other = await world.begin({ model: "b" });
    expect([node.opened.length, other.state]).toEqual([1, "pending"]);
    expect(world.edge.snapshot().models).toMatchObject([{ waiting: 0 }, { waiting: 1 }]);
    sendStart(node.last);
    sendEnd(node.last);
    await world.settled(work.frames());
    expect(node.opened).toHaveLength(2);
    expect(world.provider().in_flight).toEqual({ normal: 1, long: 0 });
    sendStart(node.last);
    sendEnd(node.last);
    expect(brief(await world.settled(other.frames()))).toEqual(["start 200", "end"]);
    expect(world.provider().in_flight).toEqual({ normal: 0, long: 0 });
  });
});

describe("what is refused", () => {
  test.each([
    ["an unknown model", { model: "nope" }, "unknown_model"],
    ["an operation that nobody offers", { operation: "embeddings" }, "unsupported_operation"],
    ["one named like an object's own parts", { operation: "constructor" }, "unsupported_operation"],
    ["a header with a line break", { headers: [["a", "b\nc"]] as const }, "invalid_request"],
    ["a header without a name", { headers: [["", "b"]] as const }, "invalid_request"],
    ["headers over 64 KiB", { headers: [["a", "x".repeat(70_000)]] as const }, "invalid_request"],
    ["a body over the limit", { buildBody: () => [new Uint8Array(101)] }, "body_too_large"],
    ["what is withdrawn already", { signal: AbortSignal.abort() }, "cancelled"],
  ])("%s", async (_what, overrides, code) => {
    const { world, node } = await connected({ limits: { bodyBytes: 100 } });
    await expect(world.submit(overrides)).rejects.toMatchObject({ name: "EdgeError", code });
    expect(node.opened).toEqual([]);
    expect(world.provider().in_flight.normal).toBe(0);
    expect(world.runEvents).toEqual([]);
  });

  test("a body that cannot be built fails with its own error, and the place is given back", async () => {
    const { world, node } = await connected();
    const failure = new Error("no body");
    const buildBody = (): never => {
      throw failure;
    };
    await expect(world.submit({ buildBody })).rejects.toBe(failure);
    expect(world.provider().in_flight.normal).toBe(0);
    expect(node.opened).toEqual([]);
  });

  test("nobody connected, and everybody busy for too long or for too many", async () => {
    const world = await EdgeWorld.listening({ queue: { maxWaiting: 1, timeoutMs: 500 } });
    await expect(world.submit()).rejects.toMatchObject({ code: "unavailable" });
    const node = await HandDrivenNode.ready(world, {}, { p1: 1 });
    await world.begin();
    const waiting = await world.begin();
    await expect(world.submit()).rejects.toMatchObject({ code: "queue_full" });
    await world.clock.advance(499);
    expect(waiting.state).toBe("pending");
    await world.clock.advance(1);
    await expect(waiting.tunnel).rejects.toMatchObject({
      code: "queue_timeout",
      queue: { position: 1, waitedMs: 500 },
    });
    expect(node.opened).toHaveLength(1);
    expect(world.runEvents).toEqual([]);
  });
});

describe("withdrawing", () => {
  test("in the turn of the submission nothing is sent", async () => {
    const { world, node } = await connected();
    const abort = new AbortController();
    const submitted = world.edge.submitProviderTunnel({
      model: "m",
      operation: "models",
      buildBody: () => [],
      signal: abort.signal,
    });
    abort.abort();
    await expect(submitted).rejects.toMatchObject({ code: "cancelled" });
    await world.clock.settle();
    expect(world.provider().in_flight.normal).toBe(0);
    expect(node.opened).toEqual([]);
    expect(world.runEvents).toEqual([]);
  });

  test.each([
    ["before the answer", 0],
    ["amid the answer", 1],
  ])("%s the Node is told, and the place is free once it has confirmed", async (_when, started) => {
    const { world, node } = await connected();
    const abort = new AbortController();
    const work = await world.begin({ signal: abort.signal });
    const frames = work.frames();
    if (started === 1) sendStart(node.last);
    await world.clock.settle();
    abort.abort();
    expect(brief(await world.settled(frames)).at(-1)).toBe("error cancelled");
    expect(node.last.stream.signal.aborted).toBe(true);
    expect(world.provider().in_flight.normal).toBe(1);
    sendError(node.last, "cancelled");
    await world.clock.settle();
    expect(world.provider().in_flight.normal).toBe(0);
    expect(world.runEvents.map(({ outcome }) => outcome)).toEqual(["cancelled"]);
  });

  test("after the answer is complete it changes nothing", async () => {
    const { world, node } = await connected();
    const abort = new AbortController();
    const work = await world.begin({ signal: abort.signal });
    expect(getEventListeners(abort.signal, "abort")).toHaveLength(1);
    sendStart(node.last);
    sendEnd(node.last);
    await world.clock.settle();
    expect(getEventListeners(abort.signal, "abort")).toHaveLength(0);
    abort.abort();
    (await work.tunnel).cancel("late");
    expect(brief(await world.settled(work.frames()))).toEqual(["start 200", "end"]);
    expect(world.runEvents.map(({ outcome }) => outcome)).toEqual(["completed"]);
  });

  test("a consumer that stops early cancels the work", async () => {
    const { world, node } = await connected();
    const work = await world.begin();
    sendStart(node.last);
    await world.clock.settle();
    for await (const frame of await work.tunnel) {
      expect(frame.kind).toBe("start");
      break;
    }
    await world.clock.settle();
    expect(node.last.stream.signal.aborted).toBe(true);
    expect(await work.frames()).toEqual([]);
    sendError(node.last, "cancelled");
    await world.clock.settle();
    expect(world.provider().in_flight.normal).toBe(0);
    expect(world.runEvents.map(({ outcome, status }) => [outcome, status])).toEqual([["cancelled", 200]]);
  });

  test("cancel reaches a waiting consumer as one error, however often it is called", async () => {
    const { world, node } = await connected();
    const work = await world.begin();
    const frames = work.frames();
    sendStart(node.last);
    const tunnel = await world.settled(work.tunnel);
    tunnel.cancel("client_closed");
    tunnel.cancel("again");
    expect(brief(await world.settled(frames))).toEqual(["start 200", "error cancelled"]);
    sendError(node.last, "cancelled");
    await world.clock.settle();
    expect(world.runEvents).toHaveLength(1);
  });

  test("without a confirmation the place returns after 10 s, but the capacity is lowered until one comes", async () => {
    const { world, node } = await connected();
    const work = await world.begin();
    work.withdraw();
    await world.clock.advance(10_100);
    expect(world.provider()).toMatchObject({
      in_flight: { normal: 0 },
      quarantined: 1,
      capacity: { effective: 1 },
    });
    expect(world.runEvents.map(({ outcome }) => outcome)).toEqual(["cancelled"]);
    sendError(node.last, "cancelled");
    await world.clock.settle();
    expect(world.provider()).toMatchObject({ quarantined: 0, capacity: { effective: 2 } });
    expect(brief(await work.frames())).toEqual(["error cancelled"]);
  });

  test("a quarantine ends with the connection", async () => {
    const { world } = await connected();
    (await world.begin()).withdraw();
    await world.clock.advance(10_100);
    world.transport.links[0]?.cut();
    await world.clock.settle();
    await HandDrivenNode.ready(world, { instanceId: "i2" });
    expect(world.provider()).toMatchObject({ quarantined: 0, capacity: { effective: 2 } });
  });

  test("a connection lost while the Node is to confirm returns the place once", async () => {
    const { world } = await connected();
    const work = await world.begin();
    work.withdraw();
    await world.clock.settle();
    world.transport.links[0]?.cut();
    expect(brief(await world.settled(work.frames()))).toEqual(["error cancelled"]);
    expect(world.runEvents.map(({ outcome }) => outcome)).toEqual(["cancelled"]);
    expect(world.provider().in_flight.normal).toBe(0);
  });
});

test("a provider that goes offline keeps what runs on it", async () => {
  const { world, node } = await connected();
  const work = await world.begin();
  await node.report("p1", ProviderHealth.OFFLINE);
  expect(world.provider()).toMatchObject({ status: "unavailable", in_flight: { normal: 1 } });
  sendStart(node.last);
  sendEnd(node.last);
  expect(brief(await world.settled(work.frames()))).toEqual(["start 200", "end"]);
  expect(world.provider().in_flight.normal).toBe(0);
});
