import { create } from "@bufbuild/protobuf";
import { NodeReadyRequestSchema, ProviderHealth, ProviderStatusSchema } from "@iop/wire";
import { describe, expect, test } from "vitest";

import type { Submitted } from "../test/edge-world.ts";
import { EdgeWorld, brief, nodeRecord, provider } from "../test/edge-world.ts";
import { HandDrivenNode, sendBody, sendEnd, sendStart } from "../test/hand-driven-node.ts";
import type { ReloadOptions } from "./edge-options.ts";
import type { ProviderRecord } from "./node-record.ts";

const MODELS = [{ key: "m", candidates: [{ node: "n1", provider: "p1", target: "served" }] }];

/** A configuration of n1 with these providers, and of n2. */
function config(
  providers: readonly ProviderRecord[] = [provider("p1")],
  models: ReloadOptions["models"] = MODELS,
): ReloadOptions {
  return { nodes: [nodeRecord("n1", "token-1", providers), nodeRecord("n2", "token-2")], models };
}

async function reload(world: EdgeWorld, options: ReloadOptions): Promise<void> {
  world.edge.reload(options);
  await world.clock.settle();
}

function capacities(node: HandDrivenNode): string[] {
  return node.refreshes.map(({ config: sent }) =>
    [String(sent?.revision), ...(sent?.providers ?? []).map(({ id, capacity }) => `${id}=${capacity}`)].join(
      " ",
    ),
  );
}

async function finish(world: EdgeWorld, node: HandDrivenNode, work: Submitted, at = 0): Promise<string[]> {
  const opened = node.opened[at];
  if (opened === undefined) throw new Error("no tunnel");
  sendStart(opened);
  sendBody(opened, "whole");
  sendEnd(opened);
  return brief(await world.settled(work.frames()));
}

describe("a configuration that is wrong", () => {
  test.each([
    ["a model without candidates", config([provider("p1")], [{ key: "m", candidates: [] }]), "models.m"],
    [
      "a candidate that is not there",
      config([provider("p2")]),
      "models.m.candidates[0].provider: node n1 has no provider",
    ],
    ["a profile that is not there", config([provider("p1", { profile: "x" })]), "p1.profile"],
    ["a capacity of 0", config([provider("p1", { capacity: 0 })]), "p1.capacity"],
    ["a provider twice", config([provider("p1"), provider("p1")]), "is configured twice"],
    [
      "a token twice",
      { nodes: [nodeRecord("n1", "t"), nodeRecord("n2", "t")], models: [] },
      "another node has the same token",
    ],
  ])("changes nothing: %s", async (_name, wrong, message) => {
    const world = await EdgeWorld.listening();
    const node = await HandDrivenNode.ready(world);
    await world.begin();
    const before = world.edge.snapshot();
    expect(() => world.edge.reload(wrong)).toThrow(
      expect.objectContaining({ code: "invalid_config", message: expect.stringContaining(message) }),
    );
    await world.clock.settle();
    expect(world.edge.snapshot()).toEqual(before);
    expect(node.refreshes).toEqual([]);
    await world.begin();
  });

  test("is not looked at once the Edge shuts down", async () => {
    const world = await EdgeWorld.listening();
    await world.edge.close();
    expect(() => world.edge.reload(config())).toThrow(expect.objectContaining({ code: "draining" }));
  });
});

describe("what callers see", () => {
  test("models and candidates are others at once, and what runs is not touched", async () => {
    const world = await EdgeWorld.listening();
    const node = await HandDrivenNode.ready(world);
    const running = await world.begin();
    await reload(
      world,
      config(undefined, [{ key: "new", candidates: [{ node: "n1", provider: "p1", target: "other" }] }]),
    );
    expect(world.edge.models()).toEqual([{ key: "new", candidates: 1, live: 1 }]);
    await expect(world.submit()).rejects.toMatchObject({ code: "unknown_model" });
    await world.begin({ model: "new" });
    expect(node.last.request.target).toBe("other");
    expect(await finish(world, node, running)).toEqual(["start 200", "body whole", "end"]);
    // Nothing of it concerns the Node.
    expect(node.refreshes).toEqual([]);
    expect(world.edge.snapshot()).toMatchObject({
      edge: { config_revision: 2 },
      nodes: [{ config_revision: 2, providers: [{ in_flight: { normal: 1 } }] }, {}],
    });
  });

  test("the result says what is new, gone and changed", async () => {
    const world = await EdgeWorld.listening();
    expect(world.edge.reload(config())).toEqual({
      revision: 2,
      nodes: { added: [], removed: [], changed: [] },
    });
    expect(
      world.edge.reload({
        nodes: [nodeRecord("n1", "other-token", [provider("p1", { capacity: 3 })]), nodeRecord("n3", "t3")],
        models: [],
      }),
    ).toEqual({ revision: 3, nodes: { added: ["n3"], removed: ["n2"], changed: ["n1"] } });
  });
});

describe("a provider", () => {
  test("whose configuration changed gets no new work until the Node has accepted it; its leases count on", async () => {
    const world = await EdgeWorld.listening();
    const node = await HandDrivenNode.ready(world);
    const running = await world.begin();
    world.edge.reload(config([provider("p1", { capacity: 1, endpoint: "http://127.0.0.1:9000" })]));
    // In the same turn.
    const waiting = await world.begin();
    expect([node.opened.length, waiting.state]).toEqual([1, "pending"]);
    expect(capacities(node)).toEqual(["2 p1=1"]);
    expect(world.provider()).toMatchObject({
      status: "unavailable",
      reason: "the Node has not accepted its changed configuration yet",
      capacity: { configured: 1, effective: 0 },
      in_flight: { normal: 1 },
    });
    expect(world.edge.snapshot()).toMatchObject({
      edge: { config_revision: 2 },
      nodes: [{ config_revision: 1 }, {}],
    });
    await node.answerRefresh();
    expect(world.provider()).toMatchObject({ status: "available", capacity: { effective: 1 } });
    expect(world.lifecycle).toEqual(["n1 connected", "n1 reconfigured"]);
    expect(world.edge.snapshot()).toMatchObject({ nodes: [{ config_revision: 2 }, {}] });
    // The work from before holds the only place.
    expect([node.opened.length, waiting.state]).toEqual([1, "pending"]);
    expect(await finish(world, node, running)).toEqual(["start 200", "body whole", "end"]);
    expect(await finish(world, node, waiting, 1)).toEqual(["start 200", "body whole", "end"]);
  });

  test("with less capacity than it has work gets none before enough is over", async () => {
    const world = await EdgeWorld.listening();
    const node = await HandDrivenNode.ready(world);
    const [first, second] = [await world.begin(), await world.begin()];
    await reload(world, config([provider("p1", { capacity: 1 })]));
    await node.answerRefresh();
    expect(world.provider()).toMatchObject({ in_flight: { normal: 2 }, capacity: { effective: 1 } });
    const waiting = await world.begin();
    await finish(world, node, first, 0);
    expect([node.opened.length, waiting.state]).toEqual([2, "pending"]);
    await finish(world, node, second, 1);
    expect(await finish(world, node, waiting, 2)).toEqual(["start 200", "body whole", "end"]);
  });

  test("that is not concerned is dispatched to all along", async () => {
    const world = await EdgeWorld.listening(config([provider("p1"), provider("p2")]));
    const node = await HandDrivenNode.ready(world, {}, { p1: 0, p2: 0 });
    await reload(world, config([provider("p2", { capacity: 5 }), provider("p1")]));
    expect(world.provider("n1", "p2").status).toBe("unavailable");
    await world.begin();
    expect(node.opened).toHaveLength(1);
  });

  test("that is new is there, and offline until the Node has accepted it and says how it is", async () => {
    const world = await EdgeWorld.listening();
    const node = await HandDrivenNode.ready(world);
    const both = config(
      [provider("p1"), provider("p2", { capacity: 7 })],
      [{ key: "m2", candidates: [{ node: "n1", provider: "p2", target: "t" }] }],
    );
    await reload(world, both);
    const unavailable = {
      status: "unavailable",
      health: "offline",
      capacity: { configured: 7, effective: 0 },
    };
    expect(world.provider("n1", "p2")).toMatchObject(unavailable);
    await node.report("p2", ProviderHealth.OK, 3);
    expect(world.provider("n1", "p2").status).toBe("unavailable");
    await node.answerRefresh();
    expect(world.provider("n1", "p2")).toMatchObject({ status: "available", capacity: { effective: 3 } });
    await world.begin({ model: "m2" });
  });

  test("that is gone gets nothing new, and is shown for as long as it has work", async () => {
    const world = await EdgeWorld.listening(config([provider("p1"), provider("p2")]));
    const node = await HandDrivenNode.ready(world, {}, { p1: 0, p2: 0 });
    const running = await world.begin();
    await reload(world, config([provider("p2")], []));
    expect(world.edge.snapshot().nodes[0]?.providers.map(({ id }) => id)).toEqual(["p2", "p1"]);
    expect(world.provider()).toMatchObject({
      status: "unavailable",
      reason: "not configured any more; its work goes on to its end",
      capacity: { configured: 0, effective: 0 },
      in_flight: { normal: 1 },
    });
    await node.answerRefresh();
    expect(await finish(world, node, running)).toEqual(["start 200", "body whole", "end"]);
    expect(world.edge.snapshot().nodes[0]?.providers.map(({ id }) => id)).toEqual(["p2"]);
  });

  test("that comes back while it still has work has that work", async () => {
    const world = await EdgeWorld.listening(config([provider("p1", { capacity: 1 })]));
    const node = await HandDrivenNode.ready(world);
    const running = await world.begin();
    await reload(world, config([provider("p2")], []));
    await node.answerRefresh();
    await reload(world, config([provider("p1", { capacity: 1 })]));
    await node.answerRefresh();
    await node.report("p1", ProviderHealth.OK);
    expect(world.edge.snapshot().nodes[0]?.providers).toMatchObject([
      { id: "p1", status: "available", in_flight: { normal: 1 } },
    ]);
    const waiting = await world.begin();
    expect([node.opened.length, waiting.state]).toEqual([1, "pending"]);
    await finish(world, node, running);
    expect(await finish(world, node, waiting, 1)).toEqual(["start 200", "body whole", "end"]);
  });

  test("that is taken out and put back before the Node has heard of it is as healthy as before", async () => {
    const world = await EdgeWorld.listening(config([provider("p1"), provider("p2")]));
    const node = await HandDrivenNode.ready(world, {}, { p1: 0, p2: 0 });
    // While the Node has not answered to this, the next is not sent.
    await reload(world, config([provider("p1"), provider("p2", { capacity: 3 })]));
    await reload(world, config([provider("p2")], []));
    await reload(world, config([provider("p1"), provider("p2", { capacity: 3 })]));
    await node.answerRefresh();
    expect(capacities(node)).toEqual(["2 p1=2 p2=3"]);
    expect(world.provider()).toMatchObject({ status: "available", health: "ok" });
  });

  test("that is switched off and on keeps its work", async () => {
    const world = await EdgeWorld.listening();
    const node = await HandDrivenNode.ready(world);
    const running = await world.begin();
    await reload(world, config([provider("p1", { enabled: false })]));
    expect(capacities(node)).toEqual(["2"]);
    expect(world.provider()).toMatchObject({
      health: "offline",
      reason: "not enabled",
      in_flight: { normal: 1 },
    });
    await expect(world.submit()).rejects.toMatchObject({ code: "unavailable" });
    await node.answerRefresh();
    await reload(world, config());
    await node.answerRefresh();
    expect(world.provider()).toMatchObject({ status: "available", in_flight: { normal: 1 } });
    await finish(world, node, running);
    expect(world.provider()).toMatchObject({ in_flight: { normal: 0 } });
  });

  test("that the Node refuses is unavailable with the reason, and asked for again by the next reload", async () => {
    const world = await EdgeWorld.listening(config([provider("p1"), provider("p2")]));
    const node = await HandDrivenNode.ready(world, {}, { p1: 0, p2: 0 });
    const changed = config([provider("p1", { capacity: 9 }), provider("p2", { capacity: 9 })]);
    await reload(world, changed);
    await node.answerRefresh({ p1: `endpoint not allowed ${"x".repeat(500)}` });
    expect(world.provider()).toMatchObject({
      status: "unavailable",
      reason: expect.stringMatching(/^endpoint not allowed x{235}$/),
    });
    expect(world.provider("n1", "p2").status).toBe("available");
    expect(world.nodeEvents.at(-1)).toMatchObject({
      type: "config_refused",
      code: "provider_refused",
      reason: expect.stringMatching(/^p1: endpoint not allowed/),
    });
    await expect(world.submit()).rejects.toMatchObject({ code: "unavailable" });
    await reload(world, changed);
    expect(world.provider().status).toBe("unavailable");
    await node.answerRefresh();
    expect(world.provider().status).toBe("available");
  });

  test("of which an answer says nothing has not been accepted", async () => {
    const world = await EdgeWorld.listening();
    const node = await HandDrivenNode.ready(world);
    await reload(world, config([provider("p1", { capacity: 9 })]));
    node.messages.length = 0;
    await node.answerRefresh({}, 2);
    expect(world.provider()).toMatchObject({ reason: "the Node has not accepted it" });
  });
});

describe("the way to the Node", () => {
  test("one at a time, and of those that come meanwhile the newest", async () => {
    const world = await EdgeWorld.listening();
    const node = await HandDrivenNode.ready(world);
    for (const capacity of [3, 4, 5]) await reload(world, config([provider("p1", { capacity })]));
    expect(capacities(node)).toEqual(["2 p1=3"]);
    // An answer to something else is none.
    await node.answerRefresh({}, 4);
    expect(capacities(node)).toEqual(["2 p1=3"]);
    await node.answerRefresh();
    expect(capacities(node)).toEqual(["2 p1=3", "4 p1=5"]);
    expect(world.provider().status).toBe("unavailable");
    await node.answerRefresh();
    expect(world.provider()).toMatchObject({ status: "available", capacity: { configured: 5 } });
  });

  test("a change that is taken back while it is under way is taken back at the Node, too", async () => {
    const world = await EdgeWorld.listening();
    const node = await HandDrivenNode.ready(world);
    await reload(world, config([provider("p1", { capacity: 3 })]));
    await reload(world, config());
    expect(world.provider().status).toBe("unavailable");
    await node.answerRefresh();
    expect(capacities(node)).toEqual(["2 p1=3", "3 p1=2"]);
    expect(world.provider().status).toBe("unavailable");
    await node.answerRefresh();
    expect(world.provider().status).toBe("available");
  });

  test("a Node that does not answer for 30 s: what changed is unavailable, until it does after all", async () => {
    const world = await EdgeWorld.listening(config([provider("p1"), provider("p2")]));
    const node = await HandDrivenNode.ready(world, {}, { p1: 0, p2: 0 });
    await reload(world, config([provider("p1", { capacity: 9 }), provider("p2")]));
    await world.clock.advance(29_999);
    expect(world.lifecycle).toEqual(["n1 connected"]);
    await world.clock.advance(1);
    expect(world.lifecycle.at(-1)).toBe("n1 config_refused no_answer");
    expect(world.provider()).toMatchObject({
      status: "unavailable",
      reason: "the Node has not answered to its changed configuration within 30000 ms",
    });
    expect(world.provider("n1", "p2").status).toBe("available");
    // It may have taken it over or not; so even what is as it was must be sent.
    await reload(world, config([provider("p1"), provider("p2")]));
    expect(capacities(node)).toEqual(["2 p1=9 p2=2", "3 p1=2 p2=2"]);
    await node.answerRefresh({}, 2);
    expect(world.provider().status).toBe("unavailable");
    await node.answerRefresh();
    expect(world.provider().status).toBe("available");
    await world.clock.advance(60_000);
    expect(world.lifecycle.at(-1)).toBe("n1 reconfigured");
  });

  test("what has changed while the Node is pending reaches it right behind its ready", async () => {
    const world = await EdgeWorld.listening();
    const node = await HandDrivenNode.dial(world);
    const { config: given } = await node.register();
    await reload(world, config([provider("p1", { capacity: 3 })]));
    await reload(world, config([provider("p1", { capacity: 4 })]));
    expect([given?.revision, node.messages]).toEqual([1n, []]);
    const offline: boolean[] = [];
    world.edge.events.on("node", () => void offline.push(world.provider().status === "unavailable"));
    expect((await node.becomeReady()).ready).toBe(true);
    expect(offline).toEqual([true]);
    expect(capacities(node)).toEqual(["3 p1=4"]);
    // Again, as a Node does that has not heard the answer: nothing more is sent.
    expect((await node.becomeReady()).ready).toBe(true);
    expect(capacities(node)).toEqual(["3 p1=4"]);
    await node.answerRefresh();
    expect(world.provider()).toMatchObject({ status: "available", capacity: { configured: 4 } });
  });

  test("a reload by somebody who hears of the ready comes behind its answer", async () => {
    const world = await EdgeWorld.listening();
    const node = await HandDrivenNode.dial(world);
    await node.register();
    world.edge.events.once("node", () => {
      world.edge.reload(config([provider("p1", { capacity: 3 })]));
    });
    const providers = [create(ProviderStatusSchema, { id: "p1", health: ProviderHealth.OK })];
    const value = create(NodeReadyRequestSchema, { nodeId: "n1", configRevision: 1n, providers });
    node.session.send({ case: "nodeReadyRequest", value });
    await world.clock.settle();
    expect(node.messages.map((message) => message.case)).toEqual([
      "nodeReadyResponse",
      "configRefreshRequest",
    ]);
    await node.answerRefresh();
    expect(world.provider().status).toBe("available");
  });

  test("a reconnect brings the newest with the registration, and nothing of the old connection's counts", async () => {
    const world = await EdgeWorld.listening();
    const old = await HandDrivenNode.ready(world);
    await reload(world, config([provider("p1", { capacity: 3 })]));
    const moved = await HandDrivenNode.dial(world);
    const { config: given } = await moved.register();
    expect([given?.revision, given?.providers[0]?.capacity]).toEqual([2n, 3]);
    await moved.becomeReady({ p1: 0 }, { revision: 2n });
    await old.answerRefresh({ p1: "no" });
    expect(world.provider()).toMatchObject({ status: "available", capacity: { effective: 3 } });
    await world.clock.advance(60_000);
    expect(world.lifecycle).not.toContain("n1 config_refused no_answer");
    expect(moved.refreshes).toEqual([]);
  });

  test("a Node that drains is not told", async () => {
    const world = await EdgeWorld.listening();
    const node = await HandDrivenNode.ready(world);
    node.session.goAway(1, "shutting down");
    await world.clock.settle();
    await reload(world, config([provider("p1", { capacity: 3 })]));
    expect(node.refreshes).toEqual([]);
  });
});

describe("a node that is gone", () => {
  const without: ReloadOptions = { nodes: [nodeRecord("n2", "token-2")], models: [] };

  test("is drained: what runs ends whole, then its connection, and its token is unknown", async () => {
    const world = await EdgeWorld.listening();
    const node = await HandDrivenNode.ready(world);
    const running = await world.begin();
    await reload(world, without);
    expect(node.goAways).toMatchObject([
      { reason: "this node has been removed from the Edge's configuration" },
    ]);
    expect(node.closed).toBeUndefined();
    expect(world.edge.snapshot().nodes).toMatchObject([
      { name: "n2" },
      { name: "n1", connected: true, providers: [{ id: "p1", in_flight: { normal: 1 } }] },
    ]);
    await reload(world, without);
    expect(await finish(world, node, running)).toEqual(["start 200", "body whole", "end"]);
    await world.clock.settle();
    expect(node.closed).toMatchObject({ code: "going_away" });
    expect(world.edge.snapshot().nodes.map(({ name }) => name)).toEqual(["n2"]);
    expect(world.lifecycle).toEqual(["n1 connected", "n1 disconnected closed"]);
    const again = await HandDrivenNode.dial(world);
    expect(await again.register()).toMatchObject({ accepted: false, reason: "no node has this token" });
  });

  test("has as long for its work as a shutdown gives, and a silent connection is closed at once", async () => {
    const world = await EdgeWorld.listening({ drainTimeoutMs: 5_000 });
    const [node, idle] = [await HandDrivenNode.ready(world), await HandDrivenNode.dial(world)];
    await idle.register({ token: "token-2", nodeName: "n2", instanceId: "i2" });
    const running = await world.begin();
    await reload(world, { nodes: [], models: [] });
    expect(idle.closed).toBeDefined();
    await world.clock.advance(4_999);
    expect(node.closed).toBeUndefined();
    await world.clock.advance(1);
    expect(brief(await running.frames())).toEqual(["error node_disconnected"]);
    expect(world.edge.snapshot()).toMatchObject({ nodes: [], streams: 0 });
  });

  test("that comes back while it drains is let go, and then registers anew", async () => {
    const world = await EdgeWorld.listening();
    const node = await HandDrivenNode.ready(world);
    const running = await world.begin();
    await reload(world, without);
    await reload(world, config([provider("p1", { capacity: 3 })]));
    await expect(world.submit()).rejects.toMatchObject({ code: "unavailable" });
    expect(node.refreshes).toEqual([]);
    await finish(world, node, running);
    await world.clock.settle();
    expect(node.closed).toBeDefined();
    const again = await HandDrivenNode.dial(world);
    expect((await again.register()).accepted).toBe(true);
    await again.becomeReady({ p1: 0 }, { revision: 3n });
    await world.begin();
  });
});

test("a token that changes holds from the next registration on", async () => {
  const world = await EdgeWorld.listening();
  const node = await HandDrivenNode.ready(world);
  await reload(world, {
    nodes: [nodeRecord("n1", "fresh"), nodeRecord("n2", "token-2"), nodeRecord("n3", "token-3")],
    models: MODELS,
  });
  await world.begin();
  expect(node.closed).toBeUndefined();
  const stale = await HandDrivenNode.dial(world);
  expect((await stale.register()).accepted).toBe(false);
  const fresh = await HandDrivenNode.dial(world);
  expect((await fresh.register({ token: "fresh" })).accepted).toBe(true);
  const added = await HandDrivenNode.dial(world);
  expect((await added.register({ token: "token-3", nodeName: "n3", instanceId: "i3" })).accepted).toBe(true);
});
