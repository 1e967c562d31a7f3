import { create } from "@bufbuild/protobuf";
import { GoAwayCode, ProviderTunnelFrame_Kind as Kind, ProviderTunnelFrameSchema } from "@iop/wire";
import { describe, expect, test } from "vitest";

import { EdgeWorld, brief, nodeRecord, provider } from "../test/edge-world.ts";
import { HandDrivenNode, sendEnd, sendError, sendStart } from "../test/hand-driven-node.ts";

const REFUSALS = ["capacity_exhausted", "node_draining", "provider_unreachable"];

/** n1/p1 and n2/p2, a place each, both of model m; `a` and `b` have p1 only, `c` p2. */
async function two(
  options: ConstructorParameters<typeof EdgeWorld>[0] = {},
): Promise<{ world: EdgeWorld; n1: HandDrivenNode; n2: HandDrivenNode }> {
  const only = [{ node: "n1", provider: "p1", target: "only" }];
  const world = await EdgeWorld.listening({
    nodes: [
      nodeRecord("n1", "token-1", [provider("p1", { capacity: 1 })]),
      nodeRecord("n2", "token-2", [provider("p2", { capacity: 1 })]),
    ],
    models: [
      {
        key: "m",
        candidates: [
          { node: "n1", provider: "p1", target: "one" },
          { node: "n2", provider: "p2", target: "two" },
        ],
      },
      { key: "a", candidates: only },
      { key: "b", candidates: only },
      { key: "c", candidates: [{ node: "n2", provider: "p2", target: "c" }] },
    ],
    ...options,
  });
  const n1 = await HandDrivenNode.ready(world);
  const n2 = await HandDrivenNode.dial(world);
  await n2.register({ token: "token-2", nodeName: "n2", instanceId: "i2" });
  await n2.becomeReady({ p2: 0 }, { nodeId: "n2" });
  return { world, n1, n2 };
}

describe("what a Node refuses", () => {
  test.each(REFUSALS)("with %s goes to the next, which it is then attributed to", async (code) => {
    const { world, n1, n2 } = await two();
    const work = await world.begin({ requestId: "r", principal: "alice" });
    await world.clock.advance(7);
    sendError(n1.last, code);
    await world.clock.settle();
    expect(work.state).toBe("pending");
    expect(Buffer.from(n2.last.request.body).toString()).toBe('{"model":"two"}');
    expect([n1.last.request.requestId, n2.last.request.requestId]).toEqual(["r", "r"]);
    expect([world.provider().in_flight.normal, world.provider("n2", "p2").in_flight.normal]).toEqual([0, 1]);
    expect(world.provider().saturated).toBe(true);
    sendStart(n2.last);
    sendEnd(n2.last);
    expect(brief(await world.settled(work.frames()))).toEqual(["start 200", "end"]);
    const { dispatch } = await work.tunnel;
    expect(dispatch).toMatchObject({ nodeId: "n2", providerId: "p2", target: "two" });
    expect(world.runEvents).toEqual([
      expect.objectContaining({
        requestId: "r",
        principal: "alice",
        dispatch,
        outcome: "completed",
        attempts: 2,
        queuedMs: 7,
        durationMs: 7,
      }),
    ]);
    expect(world.edge.snapshot().streams).toBe(0);
  });

  test("keeps its place before those that came later, of whatever model", async () => {
    const { world, n1 } = await two();
    const first = await world.begin({ model: "a" });
    const second = await world.begin({ model: "b" });
    sendError(n1.last, "capacity_exhausted");
    await world.clock.advance(99);
    expect(n1.opened).toHaveLength(1);
    await world.clock.advance(1);
    expect(n1.opened).toHaveLength(2);
    sendStart(n1.last);
    expect((await world.settled(first.tunnel)).queue).toEqual({ position: 2, waitedMs: 100 });
    expect(second.state).toBe("pending");
    sendEnd(n1.last);
    await world.clock.settle();
    expect(n1.opened).toHaveLength(3);
  });

  test("keeps its deadline", async () => {
    const { world, n1 } = await two({ queue: { timeoutMs: 250 } });
    const work = await world.begin({ model: "a" });
    await world.clock.advance(100);
    sendError(n1.last, "capacity_exhausted");
    await world.clock.advance(100);
    expect(n1.opened).toHaveLength(2);
    sendError(n1.last, "capacity_exhausted");
    await world.clock.advance(49);
    expect(work.state).toBe("pending");
    await world.clock.advance(1);
    await expect(work.tunnel).rejects.toMatchObject({ code: "queue_timeout", queue: { waitedMs: 250 } });
    expect(world.runEvents).toEqual([]);
    expect(world.provider().in_flight.normal).toBe(0);
  });

  test("again and again is asked for ever less often, until the timeout", async () => {
    const { world, n1 } = await two();
    const works = [await world.begin({ model: "a" }), await world.begin({ model: "b" })];
    const at: number[] = [];
    while (works.some(({ state }) => state === "pending")) {
      for (const tunnel of n1.opened.slice(at.length)) {
        at.push(world.clock.now());
        sendError(tunnel, "capacity_exhausted");
      }
      await world.clock.advance(10);
    }
    // 0, 100, 300, 700, … and from there every 5 s.
    expect(at.length).toBeGreaterThan(10);
    expect(at.length).toBeLessThanOrEqual(18);
    for (const work of works) await expect(work.tunnel).rejects.toMatchObject({ code: "queue_timeout" });
    expect(world.runEvents).toEqual([]);
    expect(world.edge.snapshot().models.map(({ waiting }) => waiting)).toEqual([0, 0, 0, 0]);
  });

  test("waits without a pause where work of the provider's own ends", async () => {
    const { world, n1 } = await two({
      nodes: [
        nodeRecord("n1", "token-1", [provider("p1", { capacity: 2 })]),
        nodeRecord("n2", "token-2", [provider("p2")]),
      ],
    });
    const runs = await world.begin({ model: "a" });
    const refused = await world.begin({ model: "b" });
    const [first, second] = n1.opened;
    if (first === undefined || second === undefined) throw new Error("two");
    sendError(second, "capacity_exhausted");
    await world.clock.settle();
    expect(n1.opened).toHaveLength(2);
    sendStart(first);
    sendEnd(first);
    await world.settled(runs.frames());
    expect(n1.opened).toHaveLength(3);
    sendStart(n1.last);
    sendEnd(n1.last);
    expect(brief(await world.settled(refused.frames()))).toEqual(["start 200", "end"]);
    expect(world.runEvents.map(({ attempts, queuedMs }) => [attempts, queuedMs])).toEqual([
      [1, 0],
      [2, 0],
    ]);
  });

  test("is the answer where nobody is left to ask; that is one run", async () => {
    const { world, n1 } = await two();
    const work = await world.begin({ model: "a" });
    n1.session.goAway(GoAwayCode.DRAINING, "shutting down");
    sendError(n1.last, "node_draining", "not now");
    expect(await world.settled(work.frames())).toEqual([
      { kind: "error", code: "node_draining", message: "not now" },
    ]);
    expect(world.runEvents.map(({ outcome, code, attempts }) => [outcome, code, attempts])).toEqual([
      ["error", "node_draining", 1],
    ]);
  });

  test("is not tried again where the caller has withdrawn meanwhile", async () => {
    const { world, n1, n2 } = await two();
    const work = await world.begin();
    work.withdraw();
    await world.clock.settle();
    sendError(n1.last, "capacity_exhausted");
    await world.clock.settle();
    expect(work.state).not.toBe("pending");
    expect([n1.opened.length, n2.opened.length]).toEqual([1, 0]);
    expect(world.provider().in_flight.normal).toBe(0);
  });

  test("while it waits, an Edge that shuts down gives it up", async () => {
    const { world, n1 } = await two();
    const work = await world.begin({ model: "a" });
    sendError(n1.last, "capacity_exhausted");
    await world.clock.settle();
    const closing = world.edge.close();
    await expect(world.settled(work.tunnel)).rejects.toMatchObject({ code: "draining" });
    await world.settled(closing);
    expect(n1.opened).toHaveLength(1);
  });
});

describe("what is never sent again", () => {
  test.each([
    ["another error", (node: HandDrivenNode) => sendError(node.last, "provider_error")],
    [
      "a refusal after the start, in one piece",
      (node: HandDrivenNode) => {
        sendStart(node.last);
        sendError(node.last, "capacity_exhausted");
      },
    ],
    [
      "a refusal after usage",
      (node: HandDrivenNode) => {
        sendStart(node.last);
        node.last.stream.send({
          case: "providerTunnelFrame",
          value: create(ProviderTunnelFrameSchema, { kind: Kind.USAGE, usage: { inputTokens: 1n } }),
        });
        sendError(node.last, "provider_unreachable");
      },
    ],
    ["a broken order", (node: HandDrivenNode) => sendEnd(node.last)],
  ])("%s", async (_what, answer) => {
    const { world, n1, n2 } = await two();
    const work = await world.begin();
    answer(n1);
    expect(brief(await world.settled(work.frames())).at(-1)).toMatch(/^error /);
    expect([n1.opened.length, n2.opened.length]).toEqual([1, 0]);
    expect(world.runEvents.map(({ outcome, attempts }) => [outcome, attempts])).toEqual([["error", 1]]);
    expect(world.provider().in_flight.normal).toBe(0);
  });

  test("what was sent when its connection was lost", async () => {
    const { world, n1, n2 } = await two();
    const work = await world.begin();
    expect(n1.opened).toHaveLength(1);
    world.transport.links[0]?.cut();
    expect(brief(await world.settled(work.frames()))).toEqual(["error node_disconnected"]);
    expect(n2.opened).toEqual([]);
    expect(world.runEvents).toHaveLength(1);
  });
});

test("what had not been sent when its connection was lost goes to another", async () => {
  const { world, n1, n2 } = await two({
    nodes: [
      nodeRecord("n1", "token-1", [provider("p1", { capacity: 3 })]),
      nodeRecord("n2", "token-2", [provider("p2", { capacity: 1 })]),
    ],
  });
  const [other, onTwo] = [await world.begin({ model: "a" }), await world.begin({ model: "c" })];
  expect([n1.opened.length, n2.opened.length]).toEqual([1, 1]);
  // The network takes what fills its buffers; the last request stays here.
  world.transport.links[0]?.stall();
  const stuck = await world.begin({ model: "a", buildBody: () => [new Uint8Array(400_000)] });
  const unsent = await world.begin();
  expect(world.provider().in_flight.normal).toBe(3);
  await world.clock.advance(5_100);
  expect(world.lifecycle.at(-1)).toBe("n1 disconnected heartbeat_timeout");
  for (const sent of [other, stuck]) expect(brief(await sent.frames())).toEqual(["error node_disconnected"]);
  expect([unsent.state, n2.opened.length]).toEqual(["pending", 1]);
  sendStart(n2.last);
  sendEnd(n2.last);
  await world.settled(onTwo.frames());
  expect(n2.opened).toHaveLength(2);
  sendStart(n2.last);
  sendEnd(n2.last);
  expect(brief(await world.settled(unsent.frames()))).toEqual(["start 200", "end"]);
  expect(world.runEvents.map(({ attempts, dispatch }) => `${attempts} ${dispatch.nodeId}`)).toEqual([
    "1 n1",
    "1 n1",
    "1 n2",
    "2 n2",
  ]);
});

describe("a place that is lost before its request is sent", () => {
  test("with its node, which drains right behind what freed it: the request waits on for another", async () => {
    const { world, n1, n2 } = await two();
    const [first, second] = [await world.begin(), await world.begin()];
    const waiting = await world.begin();
    sendStart(n1.last);
    await world.settled(first.tunnel);
    // One piece: the place is granted, and the node drains, before the request has its turn.
    sendEnd(n1.last);
    n1.session.goAway(GoAwayCode.DRAINING, "shutting down");
    await world.clock.settle();
    expect([n1.opened.length, n2.opened.length, waiting.state]).toEqual([1, 1, "pending"]);
    sendStart(n2.last);
    sendEnd(n2.last);
    await world.settled(second.frames());
    expect(n2.opened).toHaveLength(2);
    expect(world.provider().in_flight.normal).toBe(0);
  });

  test("with nobody else live it ends as unavailable", async () => {
    const { world, n1 } = await two();
    const first = await world.begin({ model: "a" });
    const waiting = await world.begin({ model: "b" });
    sendStart(n1.last);
    await world.settled(first.tunnel);
    sendEnd(n1.last);
    n1.session.goAway(GoAwayCode.DRAINING, "shutting down");
    await expect(world.settled(waiting.tunnel)).rejects.toMatchObject({ code: "unavailable" });
    expect(world.provider().in_flight.normal).toBe(0);
  });

  test("by a reload that changes its provider: it is sent once the Node has accepted that", async () => {
    const { world, n1 } = await two();
    const asked = world.edge.submitProviderTunnel({ model: "a", operation: "models", buildBody: () => [] });
    world.edge.reload({
      nodes: [nodeRecord("n1", "token-1", [provider("p1", { capacity: 3 })])],
      models: [{ key: "a", candidates: [{ node: "n1", provider: "p1", target: "new" }] }],
    });
    await world.clock.settle();
    expect(n1.opened).toEqual([]);
    await n1.answerRefresh();
    expect(n1.last.request.target).toBe("new");
    sendStart(n1.last);
    expect((await world.settled(asked)).dispatch.target).toBe("new");
    expect(world.provider().in_flight.normal).toBe(1);
  });
});

describe("a node that is lost", () => {
  test("gives its places to nobody: a waiter with another node goes on waiting, one without ends at once", async () => {
    const { world, n1, n2 } = await two();
    const [first, second] = [await world.begin(), await world.begin()];
    const [other, only] = [await world.begin(), await world.begin({ model: "a" })];
    const room: unknown[] = [];
    world.edge.events.on("node", () => room.push(world.provider().capacity.effective));
    world.transport.links[0]?.cut();
    await world.clock.settle();
    await expect(only.tunnel).rejects.toMatchObject({ code: "unavailable", queue: { position: 1 } });
    expect(brief(await first.frames())).toEqual(["error node_disconnected"]);
    expect([n1.opened.length, n2.opened.length, other.state, room]).toEqual([1, 1, "pending", [0]]);
    // It comes back: exactly one dispatch.
    const again = await HandDrivenNode.ready(world, { instanceId: "i3" });
    expect([again.opened.length, n2.opened.length]).toEqual([1, 1]);
    for (const node of [again, n2]) {
      sendStart(node.last);
      sendEnd(node.last);
    }
    expect(brief(await world.settled(other.frames()))).toEqual(["start 200", "end"]);
    await world.settled(second.frames());
    expect(world.runEvents).toHaveLength(3);
    expect([world.provider().in_flight, world.provider("n2", "p2").in_flight]).toEqual([
      { normal: 0, long: 0 },
      { normal: 0, long: 0 },
    ]);
  });

  test("and comes back at once serves on the new connection who could wait for it", async () => {
    const { world, n1, n2 } = await two();
    const first = await world.begin({ model: "a" });
    await world.begin();
    const [waiting, only] = [await world.begin(), await world.begin({ model: "b" })];
    world.transport.links[0]?.stall();
    const again = await HandDrivenNode.ready(world);
    expect(brief(await first.frames())).toEqual(["error node_disconnected"]);
    await expect(only.tunnel).rejects.toMatchObject({ code: "unavailable" });
    expect([n1.opened.length, n2.opened.length, again.opened.length]).toEqual([1, 1, 1]);
    sendStart(again.last);
    sendEnd(again.last);
    expect(brief(await world.settled(waiting.frames()))).toEqual(["start 200", "end"]);
    expect(world.provider().in_flight.normal).toBe(0);
  });
});

describe("a session", () => {
  test("is served where it was served last, by the same caller; elsewhere where that is full", async () => {
    const { world, n1, n2 } = await two();
    const serve = async (node: HandDrivenNode, session: string, principal: string): Promise<void> => {
      const before = node.opened.length;
      const work = await world.begin({ session, principal });
      expect(node.opened).toHaveLength(before + 1);
      sendStart(node.last);
      sendEnd(node.last);
      await world.settled(work.frames());
    };
    await serve(n1, "s", "alice");
    await serve(n2, "s", "bob");
    for (let count = 0; count < 3; count++) await serve(n2, "s", "bob");
    for (let count = 0; count < 3; count++) await serve(n1, "s", "alice");
    await world.begin({ model: "a" });
    await serve(n2, "s", "alice");
  });
});

test("two aliases of a provider with one place: never two at once, all of them served, nothing left", async () => {
  const { world, n1 } = await two();
  const works = [];
  for (let count = 0; count < 20; count++)
    works.push(await world.begin({ model: count % 2 === 0 ? "a" : "b" }));
  const order: string[] = [];
  for (let count = 0; count < 20; count++) {
    expect(n1.opened).toHaveLength(count + 1);
    expect(world.provider().in_flight).toEqual({ normal: 1, long: 0 });
    order.push(n1.last.request.requestId);
    sendStart(n1.last);
    sendEnd(n1.last);
    await world.clock.settle();
  }
  for (const work of works) expect(brief(await work.frames())).toEqual(["start 200", "end"]);
  expect(new Set(order).size).toBe(20);
  expect(world.provider().in_flight).toEqual({ normal: 0, long: 0 });
  expect(world.edge.snapshot()).toMatchObject({
    streams: 0,
    models: [{ waiting: 0 }, { waiting: 0 }, { waiting: 0 }, { waiting: 0 }],
  });
  expect(world.runEvents.map(({ outcome }) => outcome)).toEqual(works.map(() => "completed"));
});
