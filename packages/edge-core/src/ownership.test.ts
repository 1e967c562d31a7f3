import { GoAwayCode, RegisterCode } from "@iop/wire";
import type { RegisterResponse } from "@iop/wire";
import { describe, expect, test } from "vitest";

import { EdgeWorld, brief, nodeRecord, provider } from "../test/edge-world.ts";
import { HandDrivenNode, registration, sendEnd, sendStart } from "../test/hand-driven-node.ts";
import type { TunnelFrame } from "./edge-service.ts";
import { memoryNodeStore } from "./node-store.ts";

const OTHER = { instanceId: "i2" };

/** A ready owner, its network dead if `silent`. */
async function owned(silent: boolean): Promise<{ world: EdgeWorld; owner: HandDrivenNode }> {
  const world = await EdgeWorld.listening();
  const owner = await HandDrivenNode.ready(world);
  if (silent) world.transport.links[0]?.stall();
  return { world, owner };
}

/** A second process that has claimed the node and waits for its answer. */
async function claimant(
  world: EdgeWorld,
  instanceId = "i2",
): Promise<{ node: HandDrivenNode; answer: () => RegisterResponse | undefined }> {
  const node = await HandDrivenNode.dial(world);
  let answer: RegisterResponse | undefined;
  node.registering({ instanceId }).then(
    (response) => {
      answer = response;
    },
    () => {},
  );
  await world.clock.settle();
  return { node, answer: () => answer };
}

describe("a claim by another process", () => {
  test("is refused while the owner lives, to be tried again much later; the owner notices nothing", async () => {
    const { world, owner } = await owned(false);
    const { node, answer } = await claimant(world);
    expect(answer()).toMatchObject({
      accepted: false,
      code: RegisterCode.DUPLICATE_NODE,
      retryable: true,
      retryAfterMs: 60_000,
    });
    expect(node.closed).toBeDefined();
    expect(world.lifecycle).toEqual(["n1 connected", "n1 refused duplicate_node"]);
    expect(world.provider().status).toBe("available");
    expect([owner.closed, owner.goAways]).toEqual([undefined, []]);
  });

  test("is refused while the owner drains, but not for long", async () => {
    const { world, owner } = await owned(false);
    owner.session.goAway(GoAwayCode.DRAINING, "shutting down");
    const { answer } = await claimant(world);
    expect(answer()).toMatchObject({ code: RegisterCode.DUPLICATE_NODE, retryAfterMs: 2_000 });
  });

  test("is a duplicate of a pending owner too; without an instance id nobody is the same process", async () => {
    const world = await EdgeWorld.listening();
    await (await HandDrivenNode.dial(world)).register({ instanceId: "" });
    const { answer } = await claimant(world, "");
    expect(answer()?.code).toBe(RegisterCode.DUPLICATE_NODE);
  });

  test("takes the node over from an owner that is silent for 1 s, whose leases have returned by then", async () => {
    const { world, owner } = await owned(true);
    const frames = (await world.begin()).frames();
    const { node, answer } = await claimant(world);
    await world.clock.advance(999);
    expect([answer(), world.provider().in_flight.normal]).toEqual([undefined, 1]);
    await world.clock.advance(1);
    expect(answer()).toMatchObject({ accepted: true, nodeId: "n1" });
    expect(brief(await frames)).toEqual(["error node_disconnected"]);
    expect(world.provider()).toMatchObject({ health: "offline", in_flight: { normal: 0 } });
    expect(world.lifecycle).toEqual(["n1 connected", "n1 disconnected superseded"]);
    expect((await node.becomeReady()).ready).toBe(true);
    await world.begin();
    expect(node.opened).toHaveLength(1);

    // The old process wakes up and hears that it has been replaced.
    world.transport.links[0]?.resume();
    await world.clock.advance(2_000);
    expect(owner.goAways).toMatchObject([{ code: GoAwayCode.SUPERSEDED, retryAfterMs: 60_000 }]);
    expect(owner.closed?.code).toBe("going_away");
    expect(world.provider()).toMatchObject({ status: "available", in_flight: { normal: 1 } });
    expect(world.lifecycle).toHaveLength(3);
  });

  test("takes over from a pending owner that is silent", async () => {
    const world = await EdgeWorld.listening();
    await (await HandDrivenNode.dial(world)).register();
    world.transport.links[0]?.stall();
    const { answer } = await claimant(world);
    await world.clock.advance(1_000);
    expect(answer()?.accepted).toBe(true);
    expect(world.lifecycle).toEqual(["n1 refused not_ready"]);
  });

  test("is accepted at once where the owner goes by itself meanwhile", async () => {
    const { world } = await owned(true);
    const { answer } = await claimant(world);
    world.transport.links[0]?.cut();
    await world.clock.settle();
    expect(answer()?.accepted).toBe(true);
    expect(world.lifecycle).toEqual(["n1 connected", "n1 disconnected connection_lost"]);
  });

  test("that fails for its configuration drops nobody, and holds up nobody", async () => {
    const known = nodeRecord("n1", "token-1");
    const store = memoryNodeStore([known]);
    let answered = known;
    const world = await EdgeWorld.listening({
      nodes: {
        records: [known],
        find: (digest) => (store.find(digest) === undefined ? undefined : answered),
      },
    });
    await HandDrivenNode.ready(world);
    world.transport.links[0]?.stall();
    answered = nodeRecord("n1", "token-1", [provider("p1", { profile: "gone" })]);
    const failing = await claimant(world);
    await world.clock.advance(1_000);
    expect(failing.answer()?.code).toBe(RegisterCode.CONFIG_FAILED);
    expect(world.edge.snapshot().nodes[0]?.connected).toBe(true);
    answered = known;
    const next = await claimant(world, "i3");
    await world.clock.advance(1_000);
    expect(next.answer()?.accepted).toBe(true);
  });

  test("of a store that throws meanwhile ends that connection only", async () => {
    const known = nodeRecord("n1", "token-1");
    let broken = false;
    const world = await EdgeWorld.listening({
      nodes: {
        records: [known],
        find: () => {
          if (broken) throw new Error("database");
          return known;
        },
      },
    });
    await HandDrivenNode.ready(world);
    const claim = await HandDrivenNode.dial(world);
    claim.session.send(registration(OTHER));
    world.transport.links[0]?.stall();
    await world.clock.settle();
    broken = true;
    await world.clock.advance(1_000);
    expect(claim.closed).toBeDefined();
    broken = false;
    const next = await claimant(world, "i3");
    await world.clock.advance(1_000);
    expect(next.answer()?.accepted).toBe(true);
  });
});

describe("while an owner is probed", () => {
  test("a third claim is refused, and may come again soon", async () => {
    const { world } = await owned(true);
    const second = await claimant(world);
    const third = await claimant(world, "i3");
    expect(third.answer()).toMatchObject({ code: RegisterCode.DUPLICATE_NODE, retryAfterMs: 2_000 });
    await world.clock.advance(1_000);
    expect(second.answer()?.accepted).toBe(true);
    expect(world.lifecycle).toEqual([
      "n1 connected",
      "n1 refused duplicate_node",
      "n1 disconnected superseded",
    ]);
  });

  test("a third claim is refused also in the moment after the owner has gone", async () => {
    const { world } = await owned(true);
    const second = await claimant(world);
    const third = await HandDrivenNode.dial(world);
    // Both arrive in one turn, the end of the owner first: no promise job runs between them.
    world.clock.defer(() => world.transport.links[0]?.cut());
    expect(await third.register({ instanceId: "i3" })).toMatchObject({
      code: RegisterCode.DUPLICATE_NODE,
      retryAfterMs: 2_000,
    });
    expect(second.answer()?.accepted).toBe(true);
  });

  test("the owner's own process comes back at once; the other is refused", async () => {
    const { world } = await owned(true);
    const second = await claimant(world);
    const again = await HandDrivenNode.ready(world);
    await world.clock.settle();
    expect(second.answer()?.code).toBe(RegisterCode.DUPLICATE_NODE);
    expect(world.lifecycle).toEqual([
      "n1 connected",
      "n1 disconnected superseded",
      "n1 refused duplicate_node",
      "n1 connected",
    ]);
    await world.clock.advance(60_000);
    expect(again.closed).toBeUndefined();
    expect(world.lifecycle).toHaveLength(4);
  });

  test("a claimant that vanishes leaves the owner alone and the way free", async () => {
    const { world, owner } = await owned(true);
    await claimant(world);
    world.transport.links[1]?.cut();
    await world.clock.settle();
    const next = await claimant(world, "i3");
    await world.clock.advance(500);
    world.transport.links[0]?.resume();
    await world.clock.advance(600);
    expect(next.answer()?.code).toBe(RegisterCode.DUPLICATE_NODE);
    expect(owner.closed).toBeUndefined();
    expect(world.lifecycle).toEqual(["n1 connected", "n1 refused duplicate_node"]);
  });

  test("a claimant that does not wait for its answer is closed", async () => {
    const { world } = await owned(true);
    const { node } = await claimant(world);
    node.session.send(registration(OTHER));
    await world.clock.settle();
    expect(node.goAways.map(({ code }) => code)).toEqual([GoAwayCode.PROTOCOL_ERROR]);
    await world.clock.advance(1_000);
    expect(world.lifecycle).toEqual(["n1 connected"]);
  });

  test("an Edge that begins to drain accepts nobody", async () => {
    const { world } = await owned(true);
    await world.begin();
    const { answer } = await claimant(world);
    const closing = world.edge.close();
    await world.clock.advance(1_000);
    expect(answer()).toMatchObject({ code: RegisterCode.EDGE_DRAINING, retryAfterMs: 2_000 });
    await world.clock.advance(60_000);
    await closing;
    expect(world.lifecycle).toEqual([
      "n1 connected",
      "n1 refused edge_draining",
      "n1 disconnected heartbeat_timeout",
    ]);
    expect(world.clock.pending).toBe(0);
  });
});

describe("two connections of a node, in every order of claim, ready and close", () => {
  const STEPS = ["claim", "ready", "close"] as const;
  type Step = readonly ["a" | "b", (typeof STEPS)[number]];

  const orders = interleavings(
    STEPS.map((step): Step => ["a", step]),
    STEPS.map((step): Step => ["b", step]),
  );

  /** One run against what must hold: `owner` is who claimed last and has not closed. */
  async function run(order: readonly Step[], instances: { a: string; b: string }): Promise<void> {
    const world = await EdgeWorld.listening();
    const nodes = { a: await HandDrivenNode.dial(world), b: await HandDrivenNode.dial(world) };
    const [linkA, linkB] = world.transport.links;
    const links = { a: linkA, b: linkB };
    const same = instances.a === instances.b;
    const expected: string[] = [];
    let owner: "a" | "b" | undefined;
    let ready = false;
    const results: Array<Promise<TunnelFrame[]>> = [];
    let leases = 0;

    const leave = (code: string): void => {
      expected.push(ready ? `n1 disconnected ${code}` : "n1 refused not_ready");
      ready = false;
      leases = 0;
    };

    for (const [who, step] of order) {
      const node = nodes[who];
      if (step === "claim") {
        // What the network still does to the old connection comes later, with its close.
        if (same && owner !== undefined) links[owner]?.stall();
        const { accepted } = await node.register({ instanceId: instances[who] });
        expect(accepted).toBe(owner === undefined || same);
        if (!accepted) expected.push("n1 refused duplicate_node");
        else {
          if (owner !== undefined) leave("superseded");
          owner = who;
        }
      } else if (step === "ready") {
        const answer = node.becomeReady().catch(() => undefined);
        await world.clock.settle();
        if (owner === who) {
          expect((await answer)?.ready).toBe(true);
          if (!ready) expected.push("n1 connected");
          ready = true;
        } else await world.clock.advance(1_000);
      } else {
        links[who]?.cut();
        await world.clock.settle();
        if (owner === who) {
          leave("connection_lost");
          owner = undefined;
        }
      }
      if (ready && owner !== undefined) {
        const before = nodes[owner].opened.length;
        results.push((await world.begin()).frames());
        leases++;
        expect(nodes[owner].opened).toHaveLength(before + 1);
        if (leases === 2) {
          sendStart(nodes[owner].last);
          sendEnd(nodes[owner].last);
          await world.clock.settle();
          leases--;
        }
      } else await expect(world.submit()).rejects.toMatchObject({ code: "unavailable" });
      const label = JSON.stringify(order);
      expect(world.lifecycle, label).toEqual(expected);
      expect(world.edge.snapshot().nodes[0]?.connected, label).toBe(ready);
      expect(world.provider(), label).toMatchObject({
        status: ready ? "available" : "unavailable",
        capacity: { configured: 2, effective: ready ? 2 : 0 },
        in_flight: { normal: leases },
      });
    }
    expect(world.edge.snapshot().streams).toBe(0);
    const terminals = (await Promise.all(results)).map((frames) => brief(frames).at(-1));
    expect(new Set(terminals).difference(new Set(["end", "error node_disconnected"]))).toEqual(new Set());
    expect(world.runEvents).toHaveLength(results.length);
  }

  test("one process that moves", async () => {
    expect(orders).toHaveLength(20);
    for (const order of orders) await run(order, { a: "i1", b: "i1" });
  });

  test("two processes", async () => {
    for (const order of orders) await run(order, { a: "i1", b: "i2" });
  });
});

test("a connection that vanishes at any stage leaves no timer, no stream and no claim", async () => {
  const world = await EdgeWorld.listening();
  const before = world.clock.pending;
  const stages: ReadonlyArray<(node: HandDrivenNode) => unknown> = [
    () => {},
    (node) => {
      node.session.send(registration());
    },
    (node) => node.register(),
    (node) => node.register().then(() => void node.becomeReady().catch(() => {})),
    (node) => node.register().then(() => node.becomeReady()),
    (node) =>
      node
        .register()
        .then(() => node.becomeReady())
        .then(() => world.begin()),
  ];
  for (let round = 0; round < 60; round++) {
    const node = await HandDrivenNode.dial(world);
    await stages[round % stages.length]?.(node);
    if (round % 4 < 2) world.transport.links[0]?.cut();
    else node.session.close(GoAwayCode.UNSPECIFIED, "enough");
    await world.clock.advance(2_000);
    expect(world.edge.snapshot().streams).toBe(0);
    expect(world.clock.pending).toBe(before);
  }
  const count = (type: string): number => world.nodeEvents.filter((event) => event.type === type).length;
  expect(count("connected")).toBeGreaterThanOrEqual(20);
  expect(count("disconnected")).toBe(count("connected"));
  expect((await (await HandDrivenNode.dial(world)).register({ instanceId: "last" })).accepted).toBe(true);
});

/** Every way to merge two sequences. */
function interleavings<T>(one: readonly T[], other: readonly T[]): T[][] {
  const [first, ...rest] = one;
  const [second, ...others] = other;
  if (first === undefined) return [[...other]];
  if (second === undefined) return [[...one]];
  return [
    ...interleavings(rest, other).map((order) => [first, ...order]),
    ...interleavings(one, others).map((order) => [second, ...order]),
  ];
}
