import { GoAwayCode, ProviderHealth, RegisterCode } from "@iop/wire";
import { describe, expect, test } from "vitest";

import { EdgeWorld, brief, nodeRecord, provider } from "../test/edge-world.ts";
import { HandDrivenNode, registration, sendBody, sendEnd, sendStart } from "../test/hand-driven-node.ts";
import { digestToken, memoryNodeStore } from "./node-store.ts";

describe("registration", () => {
  test("answers a known token with the node's configuration, without what is not enabled", async () => {
    const nodes = [
      nodeRecord("n1", "token-1", [
        provider("p1", { authEnv: "KEY", capacity: 3 }),
        provider("p2", { enabled: false }),
      ]),
    ];
    const world = await EdgeWorld.listening({
      nodes,
      limits: { bodyBytes: 1_000 },
      heartbeat: { intervalMs: 100, waitMs: 300 },
    });
    const node = await HandDrivenNode.dial(world);
    const response = await node.register();
    expect(response).toMatchObject({
      accepted: true,
      nodeId: "n1",
      edgeName: "edge-1",
      heartbeat: { intervalMs: 100, waitMs: 300 },
      limits: { streamWindowBytes: 256 * 1024, connectionWindowBytes: 1024 * 1024 },
    });
    expect(response.config).toMatchObject({ revision: 1n, bodyBytes: 1_000n });
    expect(response.config?.providers).toHaveLength(1);
    expect(response.config?.providers[0]).toMatchObject({
      id: "p1",
      adapter: "openai-compat",
      endpoint: "http://127.0.0.1:8000",
      capacity: 3,
      authEnv: "KEY",
      firstByteTimeoutMs: 1_000,
      idleTimeoutMs: 2_000,
      profile: {
        name: "openai-chat",
        driver: "openai_chat",
        auth: { header: "authorization", scheme: "Bearer" },
        operations: { chat_completions: "/v1/chat/completions", models: "/v1/models" },
        capabilities: ["chat", "streaming", "tools"],
      },
    });
  });

  test("agrees on the lower of both sides' limits", async () => {
    const world = await EdgeWorld.listening();
    const response = await (await HandDrivenNode.dial(world)).register({ streamWindowBytes: 65_536 });
    expect(response.limits?.streamWindowBytes).toBe(65_536);
  });

  test.each([
    ["an unknown token", { token: "guess" }, RegisterCode.UNKNOWN_TOKEN, false, "n1 refused unknown_token"],
    [
      "another node's name",
      { nodeName: "n2" },
      RegisterCode.NAME_MISMATCH,
      false,
      "n2 refused name_mismatch",
    ],
    [
      "another version of the wire",
      { protocolVersion: 2 },
      RegisterCode.UNSUPPORTED_VERSION,
      false,
      "n1 refused unsupported_version",
    ],
    [
      "limits that are too low",
      { streamWindowBytes: 1 },
      RegisterCode.UNSPECIFIED,
      false,
      "n1 refused invalid_limits",
    ],
  ])(
    "refuses %s, in the response and as an event, and closes",
    async (_what, overrides, code, retryable, event) => {
      const world = await EdgeWorld.listening();
      const node = await HandDrivenNode.dial(world);
      const response = await node.register(overrides);
      expect(response).toMatchObject({ accepted: false, code, retryable });
      expect(response.reason).not.toBe("");
      expect(response.config).toBeUndefined();
      expect(world.lifecycle).toEqual([event]);
      await world.clock.settle();
      expect(node.closed).toBeDefined();
      expect(node.goAways.map((goAway) => goAway.code)).toEqual([GoAwayCode.NOT_REGISTERED]);
    },
  );

  test("an unknown name is made printable for the event, and nothing says the token", async () => {
    const world = await EdgeWorld.listening();
    const response = await (
      await HandDrivenNode.dial(world)
    ).register({ token: "secret-token", nodeName: `\u001b[31m${"x".repeat(200)}` });
    expect(world.nodeEvents[0]?.node).toBe(`?[31m${"x".repeat(59)}`);
    expect(JSON.stringify(world.nodeEvents) + response.reason).not.toContain("secret-token");
  });

  test("says when the configuration cannot be made", async () => {
    const known = nodeRecord("n1", "token-1");
    const broken = nodeRecord("n1", "token-1", [provider("p1", { profile: "gone" })]);
    const world = await EdgeWorld.listening({ nodes: { records: [known], find: () => broken } });
    const response = await (await HandDrivenNode.dial(world)).register();
    expect(response).toMatchObject({ accepted: false, code: RegisterCode.CONFIG_FAILED, retryable: true });
    expect(response.reason).toContain("nodes.n1.providers.p1.profile");
    expect(world.lifecycle).toEqual(["n1 refused config_failed"]);
  });

  test("a configuration that cannot be made does not disturb the current owner", async () => {
    const known = nodeRecord("n1", "token-1");
    const store = memoryNodeStore([known]);
    let answer = known;
    const world = await EdgeWorld.listening({
      nodes: { records: [known], find: (digest) => (store.find(digest) === undefined ? undefined : answer) },
    });
    await HandDrivenNode.ready(world);
    answer = nodeRecord("n1", "token-1", [provider("p1", { profile: "gone" })]);
    expect((await (await HandDrivenNode.dial(world)).register()).code).toBe(RegisterCode.CONFIG_FAILED);
    expect(world.provider().status).toBe("available");
  });

  test("anything else first ends the connection", async () => {
    const world = await EdgeWorld.listening();
    const node = await HandDrivenNode.dial(world);
    await node.report("p1", ProviderHealth.OK);
    expect(node.goAways.map(({ code }) => code)).toEqual([GoAwayCode.NOT_REGISTERED]);
    expect(node.closed?.code).toBe("going_away");
  });

  test("a second registration on one connection ends it", async () => {
    const world = await EdgeWorld.listening();
    const node = await HandDrivenNode.ready(world);
    node.session.send(registration());
    await world.clock.settle();
    expect(node.goAways.map(({ code }) => code)).toEqual([GoAwayCode.PROTOCOL_ERROR]);
    expect(world.edge.snapshot().nodes[0]?.connected).toBe(false);
  });

  test("a frame over 64 KiB is refused before registration", async () => {
    const world = await EdgeWorld.listening();
    const node = await HandDrivenNode.dial(world);
    node.session.send(registration({ token: "x".repeat(70_000) }));
    await world.clock.settle();
    expect(node.goAways.map(({ code }) => code)).toEqual([GoAwayCode.FRAME_TOO_LARGE]);
  });

  test("a connection that does not register is closed after 10 s", async () => {
    const world = await EdgeWorld.listening();
    const node = await HandDrivenNode.dial(world);
    await world.clock.advance(9_900);
    expect(node.closed).toBeUndefined();
    await world.clock.advance(200);
    expect(node.goAways.map(({ code }) => code)).toEqual([GoAwayCode.REGISTRATION_TIMEOUT]);
    expect(world.nodeEvents).toEqual([]);
  });

  test("at most 256 connections may be unregistered; registered ones do not count", async () => {
    const world = await EdgeWorld.listening();
    const first = await HandDrivenNode.dial(world);
    const idle: HandDrivenNode[] = [];
    for (let count = 0; count < 255; count++) idle.push(await HandDrivenNode.dial(world));
    const turnedAway = await HandDrivenNode.dial(world);
    await world.clock.settle();
    expect(turnedAway.goAways.map(({ code }) => code)).toEqual([GoAwayCode.TOO_MANY_CONNECTIONS]);
    expect(idle.every(({ closed }) => closed === undefined)).toBe(true);
    expect((await first.register()).accepted).toBe(true);
    const next = await HandDrivenNode.dial(world);
    await world.clock.settle();
    expect(next.closed).toBeUndefined();
  });
});

describe("readiness", () => {
  test("before the ready ack a node exists for nobody", async () => {
    const world = await EdgeWorld.listening();
    const node = await HandDrivenNode.dial(world);
    await node.register();
    await node.report("p1", ProviderHealth.OK);
    expect(world.edge.snapshot().nodes[0]).toMatchObject({ connected: false });
    expect(world.edge.models()).toEqual([{ key: "m", candidates: 1, live: 0 }]);
    expect(world.nodeEvents).toEqual([]);
    await expect(world.submit()).rejects.toMatchObject({ code: "unavailable" });

    expect(await node.becomeReady()).toMatchObject({ ready: true, reason: "" });
    expect(world.lifecycle).toEqual(["n1 connected"]);
    expect(world.edge.models()[0]?.live).toBe(1);
    expect(world.edge.snapshot().nodes[0]).toMatchObject({
      connected: true,
      ready_since: "1970-01-01T00:00:00.000Z",
    });
  });

  test("a duplicate ready is acknowledged and does nothing", async () => {
    const world = await EdgeWorld.listening();
    const node = await HandDrivenNode.ready(world);
    await world.begin();
    expect((await node.becomeReady({})).ready).toBe(true);
    expect(world.lifecycle).toEqual(["n1 connected"]);
    expect(world.provider()).toMatchObject({ status: "available", in_flight: { normal: 1 } });
  });

  test.each([
    ["node id", { nodeId: "n2" }],
    ["revision", { revision: 7n }],
  ])("a ready with another %s is refused, and a right one is still taken", async (_what, overrides) => {
    const world = await EdgeWorld.listening();
    const node = await HandDrivenNode.dial(world);
    await node.register();
    expect((await node.becomeReady({ p1: 0 }, overrides)).ready).toBe(false);
    expect(world.nodeEvents).toEqual([]);
    expect((await node.becomeReady()).ready).toBe(true);
  });

  test("a node that is not ready within 30 s is dropped, and its name is free again", async () => {
    const world = await EdgeWorld.listening();
    const node = await HandDrivenNode.dial(world);
    await node.register();
    await world.clock.advance(29_900);
    expect(node.closed).toBeUndefined();
    await world.clock.advance(200);
    expect(node.goAways.map(({ code }) => code)).toEqual([GoAwayCode.REGISTRATION_TIMEOUT]);
    expect(world.lifecycle).toEqual(["n1 refused not_ready"]);
    await HandDrivenNode.ready(world, { instanceId: "i2" });
    expect(world.lifecycle.at(-1)).toBe("n1 connected");
  });

  test("a ready node stays past the deadlines", async () => {
    const world = await EdgeWorld.listening();
    const node = await HandDrivenNode.ready(world);
    await world.clock.advance(60_000);
    expect(node.closed).toBeUndefined();
  });
});

describe("status", () => {
  test("moves health and capacity", async () => {
    const world = await EdgeWorld.listening();
    const node = await HandDrivenNode.ready(world);
    await node.report("p1", ProviderHealth.DEGRADED, 1, "slow");
    expect(world.provider()).toMatchObject({
      status: "available",
      health: "degraded",
      reason: "slow",
      capacity: { configured: 2, effective: 1 },
    });
    await node.report("p1", ProviderHealth.OFFLINE, 1, "connect refused");
    expect(world.provider()).toMatchObject({
      status: "unavailable",
      health: "offline",
      reason: "connect refused",
    });
    await expect(world.submit()).rejects.toMatchObject({ code: "unavailable" });
    await node.report("p1", ProviderHealth.OK, 2);
    expect(world.provider()).toMatchObject({ status: "available", health: "ok", capacity: { effective: 2 } });
    await node.report("unknown", ProviderHealth.OK);
    expect(node.closed).toBeUndefined();
  });

  test("a draining node keeps what runs and gets nothing new", async () => {
    const world = await EdgeWorld.listening();
    const node = await HandDrivenNode.ready(world);
    const work = await world.begin();
    node.session.goAway(GoAwayCode.DRAINING, "shutting down");
    await world.clock.settle();
    expect(world.provider()).toMatchObject({ status: "unavailable", reason: "the node is draining" });
    expect(world.edge.models()[0]?.live).toBe(0);
    await expect(world.submit()).rejects.toMatchObject({ code: "unavailable" });
    sendStart(node.last);
    sendEnd(node.last);
    expect(brief(await world.settled(work.frames()))).toEqual(["start 200", "end"]);
  });
});

describe("disconnect and reconnect", () => {
  test("a lost node stays visible, offline, with its configured capacity", async () => {
    const world = await EdgeWorld.listening();
    await HandDrivenNode.ready(world);
    world.transport.links[0]?.cut();
    await world.clock.settle();
    expect(world.lifecycle).toEqual(["n1 connected", "n1 disconnected connection_lost"]);
    const [node] = world.edge.snapshot().nodes;
    expect(node).toMatchObject({ connected: false });
    expect(node).not.toHaveProperty("ready_since");
    expect(node?.providers[0]).toMatchObject({
      status: "unavailable",
      health: "offline",
      capacity: { configured: 2, effective: 0 },
      in_flight: { normal: 0, long: 0 },
      quarantined: 0,
    });
  });

  test("a silent node is dropped by the heartbeat", async () => {
    const world = await EdgeWorld.listening();
    await HandDrivenNode.ready(world);
    const work = await world.begin();
    const frames = work.frames();
    world.transport.links[0]?.stall();
    await world.clock.advance(5_100);
    expect(world.lifecycle).toEqual(["n1 connected", "n1 disconnected heartbeat_timeout"]);
    expect(brief(await frames)).toEqual(["error node_disconnected"]);
  });

  test("a reconnect serves at once, with a full capacity", async () => {
    const world = await EdgeWorld.listening();
    await HandDrivenNode.ready(world);
    await world.begin();
    await world.begin();
    world.transport.links[0]?.cut();
    await world.clock.settle();
    const again = await HandDrivenNode.ready(world, { instanceId: "i2" });
    await world.begin();
    expect(again.opened).toHaveLength(1);
    expect(world.provider()).toMatchObject({ capacity: { effective: 2 }, in_flight: { normal: 1 } });
  });

  test("the same process coming back moves the ownership at once; the late end of the old connection does nothing", async () => {
    const world = await EdgeWorld.listening();
    await HandDrivenNode.ready(world);
    const work = await world.begin();
    const frames = work.frames();
    // The old connection hangs: neither side hears of its end.
    const [old] = world.transport.links;
    old?.stall();
    const again = await HandDrivenNode.ready(world);
    expect(world.lifecycle).toEqual(["n1 connected", "n1 disconnected superseded", "n1 connected"]);
    expect(brief(await frames)).toEqual(["error node_disconnected"]);
    expect(world.provider()).toMatchObject({ in_flight: { normal: 0 }, capacity: { effective: 2 } });

    const second = await world.begin();
    old?.cut();
    await world.clock.settle();
    expect(world.provider()).toMatchObject({ status: "available", in_flight: { normal: 1 } });
    sendStart(again.last);
    sendBody(again.last, "x");
    sendEnd(again.last);
    expect(brief(await world.settled(second.frames()))).toEqual(["start 200", "body x", "end"]);
    expect(world.provider().in_flight.normal).toBe(0);
    expect(world.lifecycle).toHaveLength(3);
  });

  test("at the moment of the event all leases are back and the resources offline", async () => {
    const world = await EdgeWorld.listening();
    await HandDrivenNode.ready(world);
    await world.begin();
    const seen: unknown[] = [];
    world.edge.events.on("node", () => seen.push(world.provider()));
    world.transport.links[0]?.cut();
    await world.clock.settle();
    expect(seen).toEqual([expect.objectContaining({ health: "offline", in_flight: { normal: 0, long: 0 } })]);
  });

  test("a superseded connection gets no lease back onto the resource while its streams end", async () => {
    const world = await EdgeWorld.listening();
    await HandDrivenNode.ready(world);
    await world.begin();
    await world.begin();
    const room: number[] = [];
    world.edge.events.on("run", () => {
      const { capacity, in_flight } = world.provider();
      room.push(capacity.effective - in_flight.normal);
    });
    world.transport.links[0]?.cut();
    await world.clock.settle();
    expect(world.runEvents.map(({ outcome, code }) => `${outcome} ${code}`)).toEqual([
      "error node_disconnected",
      "error node_disconnected",
    ]);
    expect(room).toEqual([0, 0]);
  });
});

describe("a node store", () => {
  test("knows a token by its SHA-256, in either case", () => {
    const record = {
      ...nodeRecord("n1", "token-1"),
      tokenSha256: nodeRecord("n1", "token-1").tokenSha256.toUpperCase(),
    };
    const store = memoryNodeStore([nodeRecord("n2", "token-2"), record]);
    expect(store.find(digestToken("token-1"))).toBe(record);
    expect(store.find(digestToken("token-3"))).toBeUndefined();
    expect(store.find(digestToken("token-1").subarray(0, 31))).toBeUndefined();
  });
});
