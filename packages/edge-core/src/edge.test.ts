import type { ConnectionHandlers } from "@iop/wire";
import { GoAwayCode, RegisterCode } from "@iop/wire";
import { describe, expect, test } from "vitest";

import { EdgeWorld, brief, nodeRecord, provider } from "../test/edge-world.ts";
import { HandDrivenNode, sendBody, sendEnd, sendStart } from "../test/hand-driven-node.ts";
import type { EdgeOptions } from "./edge-options.ts";

const candidate = { node: "n1", provider: "p1", target: "t" };

describe("configuration", () => {
  test.each<[string, Partial<EdgeOptions>]>([
    ["nodes.n1: is configured twice", { nodes: [nodeRecord("n1", "a"), nodeRecord("n1", "b")] }],
    ["nodes.n2.tokenSha256: another node", { nodes: [nodeRecord("n1", "a"), nodeRecord("n2", "a")] }],
    ["nodes.n1.tokenSha256: must be 64", { nodes: [{ name: "n1", tokenSha256: "abc", providers: [] }] }],
    [
      "nodes.n1.providers.p1: is configured twice",
      { nodes: [nodeRecord("n1", "a", [provider("p1"), provider("p1")])] },
    ],
    [
      "nodes.n1.providers.p1.profile: no profile",
      { nodes: [nodeRecord("n1", "a", [provider("p1", { profile: "x" })])] },
    ],
    [
      "nodes.n1.providers.p1.profile: no profile",
      { nodes: [nodeRecord("n1", "a", [provider("p1", { profile: "toString" })])] },
    ],
    [
      "nodes.n1.providers.p1.capacity: 0",
      { nodes: [nodeRecord("n1", "a", [provider("p1", { capacity: 0 })])] },
    ],
    [
      "nodes.n1.providers.p1.idleTimeoutMs: 1.5",
      { nodes: [nodeRecord("n1", "a", [provider("p1", { idleTimeoutMs: 1.5 })])] },
    ],
    ["models.m.candidates: is empty", { models: [{ key: "m", candidates: [] }] }],
    [
      "models.m.candidates[0].node: no node",
      { models: [{ key: "m", candidates: [{ ...candidate, node: "x" }] }] },
    ],
    [
      "models.m.candidates[1].provider: node n1 has no provider",
      { models: [{ key: "m", candidates: [candidate, { ...candidate, provider: "x" }] }] },
    ],
    [
      "models.m: is configured twice",
      {
        models: [
          { key: "m", candidates: [candidate] },
          { key: "m", candidates: [candidate] },
        ],
      },
    ],
    ["heartbeat: the wait", { heartbeat: { intervalMs: 100, waitMs: 100 } }],
    ["limits.streamWindowBytes is 1;", { limits: { streamWindowBytes: 1 } }],
    ["limits.bodyBytes: 0", { limits: { bodyBytes: 0 } }],
    ["drainTimeoutMs: NaN", { drainTimeoutMs: Number.NaN }],
  ])("says %s", (message, options) => {
    expect(() => new EdgeWorld(options)).toThrow(
      expect.objectContaining({
        code: "invalid_config",
        message: expect.stringContaining(message) as unknown,
      }),
    );
  });

  test("an entry of a built-in profile's name replaces it", async () => {
    const world = await EdgeWorld.listening({
      profiles: {
        "openai-chat": { driver: "openai_chat", operations: { chat_completions: "/chat" }, capabilities: [] },
      },
    });
    const node = await HandDrivenNode.ready(world);
    await world.begin();
    expect(node.last.request.path).toBe("/chat");
    await expect(world.submit({ operation: "models" })).rejects.toMatchObject({
      code: "unsupported_operation",
    });
  });
});

describe("the snapshot", () => {
  test("shows everything that is configured before anybody has connected", async () => {
    const world = await EdgeWorld.listening({
      nodes: [nodeRecord("n1", "token-1", [provider("p1"), provider("p2", { enabled: false, capacity: 7 })])],
    });
    await world.clock.advance(2_500);
    const offline = {
      adapter: "openai-compat",
      status: "unavailable",
      health: "offline",
      in_flight: { normal: 0, long: 0 },
      quarantined: 0,
    };
    expect(world.edge.snapshot()).toEqual({
      edge: { name: "edge-1", mode: "legacy", uptime_sec: 2, config_revision: 1 },
      nodes: [
        {
          name: "n1",
          connected: false,
          providers: [
            {
              ...offline,
              id: "p1",
              reason: "the node is not connected",
              capacity: { configured: 2, effective: 0, long_configured: 0, long_effective: 0 },
            },
            {
              ...offline,
              id: "p2",
              reason: "not enabled",
              capacity: { configured: 7, effective: 0, long_configured: 0, long_effective: 0 },
            },
          ],
        },
      ],
      models: [{ key: "m", waiting: 0, candidates: 1, live: 0 }],
      streams: 0,
      totals: { relayed_bytes: { request: 0, response: 0 }, unknown_messages: 0, late_messages: 0 },
    });
  });

  test("counts what runs", async () => {
    const world = await EdgeWorld.listening();
    await HandDrivenNode.ready(world);
    await world.begin();
    expect(world.edge.snapshot()).toMatchObject({
      nodes: [{ connected: true, providers: [{ in_flight: { normal: 1 } }] }, { connected: false }],
      models: [{ live: 1 }],
      streams: 1,
    });
  });

  test("adds up what was relayed and what was ignored, over connections that are gone, too", async () => {
    let inject: ConnectionHandlers["data"] | undefined;
    const world = await EdgeWorld.listening({}, (transport) => ({
      dial: (options) => transport.dial(options),
      listen: ({ accept }) =>
        transport.listen({
          accept: (connection) => {
            const open = connection.open.bind(connection);
            connection.open = (handlers) => {
              inject = (chunk) => handlers.data(chunk);
              open(handlers);
            };
            accept(connection);
          },
        }),
    }));
    const first = await HandDrivenNode.ready(world);
    const work = await world.begin({ buildBody: () => [Buffer.from("12345")] });
    const frames = work.frames();
    sendStart(first.last);
    sendBody(first.last, "abc");
    sendEnd(first.last);
    await world.settled(frames);
    // A frame of 3 bytes: an envelope with nothing in it but field 1000, which no version has.
    inject?.(Uint8Array.of(0, 0, 0, 3, 0xc0, 0x3e, 1));
    const totals = {
      relayed_bytes: { request: 5, response: 3 },
      unknown_messages: 1,
      late_messages: 0,
    };
    expect(world.edge.snapshot().totals).toEqual(totals);
    first.session.close(GoAwayCode.DRAINING, "gone");
    await HandDrivenNode.ready(world, { instanceId: "i2" });
    expect(world.edge.snapshot().totals).toEqual(totals);
  });
});

describe("listening", () => {
  test("says where; a second time is refused", async () => {
    const world = new EdgeWorld();
    expect(await world.edge.listen()).toEqual({ address: "memory" });
    await expect(world.edge.listen()).rejects.toMatchObject({ code: "invalid_config" });
  });

  test("a failure of the transport is passed on, and may be tried again", async () => {
    const world = new EdgeWorld();
    const other = await world.transport.listen({ accept: (connection) => connection.destroy() });
    await expect(world.edge.listen()).rejects.toMatchObject({ code: "dial_failed" });
    await other.close();
    await world.edge.listen();
  });

  test("aborted, it leaves nothing behind", async () => {
    const world = new EdgeWorld();
    const abort = new AbortController();
    const listening = world.edge.listen({ signal: abort.signal });
    abort.abort(new Error("stop"));
    await expect(listening).rejects.toThrow("stop");
    await expect(HandDrivenNode.dial(world)).rejects.toMatchObject({ code: "dial_failed" });
    await expect(world.edge.listen({ signal: abort.signal })).rejects.toThrow("stop");
    await world.edge.listen();
  });
});

describe("shutting down", () => {
  test("what runs finishes, nothing new begins, then the connections close", async () => {
    const world = await EdgeWorld.listening();
    const node = await HandDrivenNode.ready(world);
    const frames = (await world.begin()).frames();
    let closed = false;
    const closing = world.edge.close().then(() => {
      closed = true;
    });
    await world.clock.settle();
    expect(node.goAways).toMatchObject([{ code: GoAwayCode.DRAINING, retryAfterMs: 2_000 }]);
    expect(node.closed).toBeUndefined();
    await expect(world.submit()).rejects.toMatchObject({ code: "draining" });
    const late = await HandDrivenNode.dial(world);
    expect(await late.register({ token: "token-2", nodeName: "n2" })).toMatchObject({
      accepted: false,
      code: RegisterCode.EDGE_DRAINING,
      retryable: true,
      retryAfterMs: 2_000,
    });
    expect(closed).toBe(false);

    sendStart(node.last);
    sendBody(node.last, "x");
    sendEnd(node.last);
    expect(brief(await world.settled(frames))).toEqual(["start 200", "body x", "end"]);
    await world.settled(closing);
    expect(node.closed?.code).toBe("going_away");
    expect(world.lifecycle).toEqual(["n1 connected", "n2 refused edge_draining", "n1 disconnected closed"]);
    await expect(HandDrivenNode.dial(world)).rejects.toMatchObject({ code: "dial_failed" });
  });

  test("it waits for the last of what runs", async () => {
    const world = await EdgeWorld.listening();
    const node = await HandDrivenNode.ready(world);
    await world.begin();
    await world.begin();
    const closing = world.edge.close();
    for (const tunnel of node.opened) {
      await world.clock.settle();
      expect(node.closed).toBeUndefined();
      sendStart(tunnel);
      sendEnd(tunnel);
    }
    await world.settled(closing);
    expect(node.closed).toBeDefined();
    expect(world.lifecycle).toEqual(["n1 connected", "n1 disconnected closed"]);
  });

  test("who still gets through while the listener closes is turned away", async () => {
    const gate = Promise.withResolvers<void>();
    const world = await EdgeWorld.listening({}, (transport) => ({
      dial: (options) => transport.dial(options),
      async listen(options) {
        const listener = await transport.listen(options);
        return { address: listener.address, close: () => gate.promise.then(() => listener.close()) };
      },
    }));
    const closing = world.edge.close();
    await world.clock.settle();
    const late = await HandDrivenNode.dial(world);
    await world.clock.settle();
    expect(late.goAways.map(({ code }) => code)).toEqual([GoAwayCode.DRAINING]);
    gate.resolve();
    await closing;
  });

  test("what does not finish in time ends with an error", async () => {
    const world = await EdgeWorld.listening({ drainTimeoutMs: 99_000 });
    const node = await HandDrivenNode.ready(world);
    const frames = (await world.begin()).frames();
    sendStart(node.last);
    const closing = world.edge.close({ drainTimeoutMs: 5_000 });
    await world.clock.advance(4_900);
    expect(node.closed).toBeUndefined();
    await world.clock.advance(200);
    await closing;
    expect(brief(await frames)).toEqual(["start 200", "error node_disconnected"]);
    expect(world.provider().in_flight.normal).toBe(0);
    expect(world.edge.snapshot().streams).toBe(0);
  });

  test("with nothing running it is immediate, and idempotent; connections that have not registered close too", async () => {
    const world = await EdgeWorld.listening();
    const idle = await HandDrivenNode.dial(world);
    await world.settled(
      Promise.all([world.edge.close(), world.edge.close(), world.edge[Symbol.asyncDispose]()]),
    );
    expect(idle.closed).toBeDefined();
    await expect(world.edge.listen()).rejects.toMatchObject({ code: "draining" });
    await world.clock.advance(2_000);
    expect(world.clock.pending).toBe(0);
  });
});

describe("events", () => {
  test("a subscriber that fails harms nobody", async () => {
    const world = new EdgeWorld();
    const seen: string[] = [];
    world.edge.events.on("node", () => {
      throw new Error("mine");
    });
    // oxlint-disable-next-line typescript/no-misused-promises -- what a careless subscriber does
    world.edge.events.on("node", () => Promise.reject(new Error("mine too")));
    world.edge.events.on("node", ({ type }) => void seen.push(type));
    await world.edge.listen();
    const node = await HandDrivenNode.ready(world);
    const work = await world.begin();
    sendStart(node.last);
    sendEnd(node.last);
    expect(brief(await world.settled(work.frames()))).toEqual(["start 200", "end"]);
    expect(seen).toEqual(["connected"]);
  });

  test("once and off", async () => {
    const world = await EdgeWorld.listening();
    const counts = { always: 0, once: 0, off: 0 };
    const off = (): void => void counts.off++;
    world.edge.events.on("node", () => void counts.always++);
    world.edge.events.once("node", () => void counts.once++);
    world.edge.events.on("node", off);
    world.edge.events.off("node", off);
    const node = await HandDrivenNode.ready(world);
    node.session.close(GoAwayCode.UNSPECIFIED, "bye");
    await world.clock.settle();
    expect(counts).toEqual({ always: 2, once: 1, off: 0 });
  });

  test("hold nothing of a request's content", async () => {
    const world = await EdgeWorld.listening();
    const node = await HandDrivenNode.ready(world);
    const work = await world.begin({
      headers: [["x-a", "secret-header"]],
      buildBody: () => [Buffer.from("secret-prompt")],
    });
    sendStart(node.last);
    sendBody(node.last, "secret-completion");
    sendEnd(node.last);
    await world.settled(work.frames());
    expect(world.runEvents).toHaveLength(1);
    const said = JSON.stringify([world.runEvents, world.nodeEvents, world.edge.snapshot()]);
    expect(said).not.toMatch(/secret-|token-1/);
  });
});
