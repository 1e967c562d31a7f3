import { DEFAULT_FLOW_LIMITS, GoAwayCode, ProviderHealth, RegisterCode } from "@iop/wire";
import { expect, test } from "vitest";

import { NodeError } from "./node-error.ts";
import { runNode } from "./testing/running-node.ts";
import { scriptedAdapter, untilAborted } from "./testing/scripted-adapter.ts";

test("registers, applies the configuration, starts the adapters, and only then says ready", async () => {
  const started = Promise.withResolvers<void>();
  const { adapter, calls } = scriptedAdapter({ start: () => started.promise });
  const node = await runNode(adapter, { softwareVersion: "1.2.3" });
  const side = node.edge.last;

  expect(side.registration).toMatchObject({
    token: "secret-token",
    nodeName: "gpu-1",
    protocolVersion: 1,
    softwareVersion: "1.2.3",
    features: [],
  });
  expect(side.registration.instanceId).not.toBe("");
  expect(calls).toEqual([]);
  side.accept([{ id: "a" }]);
  await node.clock.settle();
  expect(calls).toEqual(["create a", "start a"]);
  expect(side.cases).toEqual(["registerRequest"]);

  started.resolve();
  await node.clock.settle();
  expect(side.cases).toEqual(["registerRequest", "nodeReadyRequest"]);
  expect(side.ready).toMatchObject({ nodeId: "gpu-1", configRevision: 7n });
  expect(side.ready.providers).toMatchObject([
    { id: "a", health: ProviderHealth.OK, maxConcurrency: 2, inFlight: 0, reason: "" },
  ]);
  expect(node.told).toEqual(["provider a ok"]);

  side.acknowledge();
  await node.clock.settle();
  expect(node.told).toEqual(["provider a ok", "ready edge-1"]);
  await node.end();
  expect(node.outcome).toEqual({});
});

test("work is accepted from the moment the ready is sent, and refused before", async () => {
  const started = Promise.withResolvers<void>();
  const { adapter, calls } = scriptedAdapter({ start: () => started.promise });
  const node = await runNode(adapter);
  const side = node.edge.last;
  side.accept([{ id: "p" }]);
  await node.clock.settle();
  const early = side.open().read();
  await node.clock.settle();
  expect(early.story).toEqual(["error node_not_ready"]);
  started.resolve();
  await node.clock.settle();
  expect(side.cases).toContain("nodeReadyRequest");

  const work = side.open().read();
  await node.clock.settle();
  expect(work.story).toEqual(["start 200", "end"]);
  expect(calls.filter((call) => call === "tunnel p")).toHaveLength(1);
  await node.end();
});

test.each([
  [RegisterCode.UNKNOWN_TOKEN, "unknown_token"],
  [RegisterCode.NAME_MISMATCH, "name_mismatch"],
  [RegisterCode.UNSUPPORTED_VERSION, "unsupported_version"],
  [RegisterCode.UNSPECIFIED, "refused"],
])("a refusal with code %i ends the node with %s, the token unsaid", async (code, expected) => {
  const node = await runNode(scriptedAdapter({}).adapter);
  node.edge.last.answer({ code, reason: "no" });
  // The Edge closes right behind its answer.
  node.edge.last.session.close(GoAwayCode.UNSPECIFIED, "bye");
  await node.clock.settle();
  expect(node.outcome?.error).toMatchObject({ name: "NodeError", code: expected });
  expect(String(node.outcome?.error)).not.toContain("secret-token");
  expect(node.edge.sessions).toHaveLength(1);
});

test("what the edge said counts, even where the connection ends right behind it", async () => {
  const node = await runNode(scriptedAdapter({}).adapter);
  node.edge.last.answer({ code: RegisterCode.UNKNOWN_TOKEN });
  node.edge.last.session.agree(DEFAULT_FLOW_LIMITS);
  // Work for a node that was refused: a violation that ends the session in the same turn.
  node.edge.last.open();
  await node.clock.settle();
  expect(node.outcome?.error).toMatchObject({ code: "unknown_token" });
});

test.each([
  ["another edge", { edgeName: "edge-2" }, "edge_mismatch"],
  ["another node id", { nodeId: "gpu-2" }, "name_mismatch"],
])("an acceptance by %s ends the node", async (_, answer, code) => {
  const node = await runNode(scriptedAdapter({}).adapter, { edgeName: "edge-1" });
  node.edge.last.accept([], answer);
  await node.clock.settle();
  expect(node.outcome?.error).toMatchObject({ code });
});

test.each([
  ["duplicate node", { code: RegisterCode.DUPLICATE_NODE }],
  ["config failed", { code: RegisterCode.CONFIG_FAILED }],
  ["edge draining", { code: RegisterCode.EDGE_DRAINING }],
  ["unknown token, but retryable", { code: RegisterCode.UNKNOWN_TOKEN, retryable: true }],
])("a refusal that may pass is tried again: %s", async (_, answer) => {
  const node = await runNode(scriptedAdapter({}).adapter);
  node.edge.last.answer({ reason: "later", retryAfterMs: 20_000, ...answer });
  await node.clock.settle();
  // The least that the Edge asked for, spread upwards.
  expect(node.told).toEqual(["retry 2 22000"]);
  await node.clock.advance(22_000);
  expect(node.edge.sessions).toHaveLength(2);
  await node.end();
});

test("nonsense from the edge is tried again, not fatal", async () => {
  const node = await runNode(scriptedAdapter({}).adapter);
  node.edge.last.accept([], { heartbeat: { $typeName: "iop.HeartbeatSettings", intervalMs: 1, waitMs: 1 } });
  await node.clock.advance(10_000);
  node.edge.last.accept([], {
    limits: {
      $typeName: "iop.FlowLimits",
      streamWindowBytes: 1,
      connectionWindowBytes: 1,
      maxFrameBytes: 1,
      maxStreams: 1,
    },
  });
  await node.clock.advance(10_000);
  node.edge.last.accept([]);
  await node.clock.settle();
  node.edge.last.acknowledge(false, "stale");
  await node.clock.settle();
  expect(node.told).toEqual(["retry 2 10000", "retry 3 10000", "retry 4 10000"]);
  expect(node.outcome).toBeUndefined();
  await node.end();
});

test("an edge that does not answer is given up after 10 s, at registration and at ready", async () => {
  const node = await runNode(scriptedAdapter({}).adapter);
  await node.clock.advance(9_999);
  expect(node.told).toEqual([]);
  await node.clock.advance(1);
  expect(node.told).toEqual(["retry 2 10000"]);
  await node.clock.advance(10_000);
  node.edge.last.accept([]);
  await node.clock.advance(10_000);
  expect(node.told).toEqual(["retry 2 10000", "retry 3 10000"]);
  expect(node.edge.sessions[0]?.closed).toBeDefined();
  await node.end();
});

test("shutdown ends the node at each stage before ready", async () => {
  for (const stage of ["dial", "register", "start", "ready"]) {
    const { adapter, calls } = scriptedAdapter({ start: ({ signal }) => untilAborted(signal) });
    const node = await runNode(
      adapter,
      stage === "dial"
        ? { transport: { dial: ({ signal }) => untilAborted(signal), listen: () => Promise.reject() } }
        : {},
    );
    if (stage === "start") node.edge.last.accept([{ id: "a" }]);
    if (stage === "ready") node.edge.last.accept([]);
    await node.clock.settle();
    expect(node.outcome, stage).toBeUndefined();
    node.shutdown.abort();
    await node.clock.advance(200);
    expect(node.outcome, stage).toEqual({});
    if (stage === "start") expect(calls).toEqual(["create a", "start a", "stop a"]);
    if (stage !== "dial") expect(node.edge.last.closed).toMatchObject({ code: "going_away" });
    // Only the Edge's side of the test has anything left to wait for.
    await node.end();
  }
});

test("a session that ends while adapters start does not wait for them", async () => {
  const { adapter, calls } = scriptedAdapter({ start: ({ signal }) => untilAborted(signal) });
  const node = await runNode(adapter);
  node.edge.last.accept([{ id: "a" }]);
  await node.clock.settle();
  node.transport.links[0]?.cut();
  await node.clock.settle();
  expect(node.told).toEqual(["retry 2 10000"]);
  expect(calls).toEqual(["create a", "start a", "stop a"]);
  await node.end();
});

test("a running node does not run twice at once; options are checked", async () => {
  const { createNode } = await import("./node.ts");
  const transport = { dial: () => Promise.reject(new Error("none")), listen: () => Promise.reject() };
  const base = { transport, name: "n", token: "t", adapters: [], allow: { endpoints: [], env: [] } };
  const node = createNode(base);
  const shutdown = new AbortController();
  const first = node.run({ signal: shutdown.signal });
  await expect(node.run({ signal: shutdown.signal })).rejects.toMatchObject({ code: "already_running" });
  shutdown.abort();
  await first;

  const { adapter } = scriptedAdapter({});
  for (const wrong of [
    { name: "" },
    { token: "" },
    { adapters: [adapter, adapter] },
    { reconnect: { maxAttempts: 0, intervalMs: 0 } },
    { reconnect: { maxAttempts: -1 } },
    { drainTimeoutMs: Number.NaN },
    { allow: { endpoints: ["127.0.0.1"], env: [] } },
    { limits: { flow: { maxStreams: 0 } } },
  ]) {
    expect(() => createNode({ ...base, ...wrong })).toThrow(NodeError);
  }
});
