import type { ProviderHealth } from "@iop/agent-runtime";
import { RuntimeError } from "@iop/agent-runtime";
import { ProviderHealth as Health } from "@iop/wire";
import { expect, test } from "vitest";

import { runNode } from "./testing/running-node.ts";
import { respond, scriptedAdapter, untilAborted } from "./testing/scripted-adapter.ts";

test("what the owner does not allow makes that provider unavailable, with the reason, and nothing else", async () => {
  const { adapter, calls } = scriptedAdapter({});
  const node = await runNode(adapter);
  const side = node.edge.last;
  await side.welcome([
    { id: "fine", endpoint: "http://127.0.0.1:8000", authEnv: "KEY_A" },
    { id: "elsewhere", endpoint: "http://user:pw@10.0.0.1:8000" },
    { id: "secret", authEnv: "AWS_SECRET" },
    { id: "kind", adapter: "cli" },
    { id: "none", capacity: 0 },
    { id: "twice" },
    { id: "twice" },
    {
      id: "driver",
      profile: {
        $typeName: "iop.RuntimeProfile",
        name: "mine",
        driver: "smtp",
        operations: {},
        capabilities: [],
        extensions: {},
      },
    },
  ]);
  const said = side.ready.providers.map(({ id, health, reason }) => `${id} ${health} ${reason}`);
  expect(said).toEqual([
    `fine ${Health.OK} `,
    `elsewhere ${Health.OFFLINE} endpoint "http://10.0.0.1:8000" is not in this node's allow.endpoints`,
    `secret ${Health.OFFLINE} variable "AWS_SECRET" is not in this node's allow.env`,
    `kind ${Health.OFFLINE} there is no adapter "cli" here`,
    `none ${Health.OFFLINE} capacity must be at least 1`,
    `twice ${Health.OFFLINE} configured more than once`,
    `driver ${Health.OFFLINE} profile "mine": unknown driver "smtp"`,
  ]);
  expect(calls).toEqual(["create fine", "start fine"]);
  const refused = side.open({ providerId: "secret" }).read();
  const served = side.open({ providerId: "fine" }).read();
  await node.clock.settle();
  expect([refused.story, served.story]).toEqual([["error provider_unavailable"], ["start 200", "end"]]);
  expect(refused.errorMessage).toContain("allow.env");
  await node.end();
});

test("two adapters of one kind are a mistake of the host", async () => {
  const { adapter } = scriptedAdapter({});
  await expect(runNode(adapter, { adapters: [adapter, adapter] })).rejects.toMatchObject({
    code: "invalid_options",
    message: 'adapters: "scripted" is there twice',
  });
});

test("adapters get the configuration as it was sent, and only the variables that are allowed", async () => {
  const seen: unknown[] = [];
  const asked: string[] = [];
  const { adapter } = scriptedAdapter({});
  const node = await runNode(
    {
      kind: "scripted",
      create(config, context) {
        seen.push(config, context.env("KEY_A"), context.env("HOME"));
        return adapter.create(config, context);
      },
    },
    {
      env: (name) => {
        asked.push(name);
        return `value of ${name}`;
      },
    },
  );
  await node.edge.last.welcome([
    {
      id: "a",
      endpoint: "http://127.0.0.1:8000/v1",
      capacity: 3,
      authEnv: "KEY_A",
      firstByteTimeoutMs: 1,
      idleTimeoutMs: 2,
      profile: {
        $typeName: "iop.RuntimeProfile",
        name: "openai-chat",
        driver: "openai_chat",
        auth: { $typeName: "iop.AuthScheme", header: "authorization", scheme: "Bearer" },
        operations: { chat_completions: "/v1/chat/completions" },
        capabilities: ["chat"],
        extensions: { reasoning: true },
      },
    },
  ]);
  expect(seen).toEqual([
    {
      id: "a",
      adapter: "scripted",
      endpoint: "http://127.0.0.1:8000/v1",
      capacity: 3,
      authEnv: "KEY_A",
      firstByteTimeoutMs: 1,
      idleTimeoutMs: 2,
      profile: {
        name: "openai-chat",
        driver: "openai_chat",
        auth: { header: "authorization", scheme: "Bearer" },
        operations: { chat_completions: "/v1/chat/completions" },
        capabilities: ["chat"],
        extensions: { reasoning: true },
      },
    },
    "value of KEY_A",
    undefined,
  ]);
  expect(asked).toEqual(["KEY_A"]);
  await node.end();
});

test("an instance is kept across sessions while its configuration is the same; what changed is rebuilt, what is gone stopped", async () => {
  const stopped = Promise.withResolvers<void>();
  const { adapter, calls } = scriptedAdapter({ stop: () => stopped.promise });
  const node = await runNode(adapter);
  await node.edge.last.welcome([{ id: "same" }, { id: "changed" }, { id: "gone" }]);
  calls.length = 0;
  node.transport.links[0]?.cut();
  await node.clock.advance(10_000);
  node.edge.last.accept([{ id: "same" }, { id: "changed", capacity: 5 }, { id: "new" }]);
  await node.clock.settle();
  expect([...calls].sort()).toEqual(["create new", "start new", "stop changed", "stop gone"]);
  stopped.resolve();
  await node.clock.settle();
  expect([...calls].sort()).toEqual([
    "create changed",
    "create new",
    "start changed",
    "start new",
    "stop changed",
    "stop gone",
  ]);
  expect(node.edge.last.ready.providers).toMatchObject([
    { id: "same", maxConcurrency: 2 },
    { id: "changed", maxConcurrency: 5 },
    { id: "new" },
  ]);
  calls.length = 0;
  await node.end();
  expect([...calls].sort()).toEqual(["stop changed", "stop new", "stop same"]);
});

test("work of the session before that has not stopped still holds its place, also after a change", async () => {
  const stop = Promise.withResolvers<never>();
  const { adapter } = scriptedAdapter({
    tunnel: ({ requestId }) => (requestId === "deaf" ? stop.promise : Promise.resolve(respond([]))),
  });
  const node = await runNode(adapter);
  await node.edge.last.welcome([{ id: "p", capacity: 1 }]);
  node.edge.last.open({ requestId: "deaf" });
  await node.clock.settle();
  node.transport.links[0]?.cut();
  await node.clock.advance(10_000);
  // The change waits 5 s for the work that was aborted.
  node.edge.last.accept([{ id: "p", capacity: 1, idleTimeoutMs: 1 }]);
  await node.clock.advance(5_000);
  node.edge.last.acknowledge();
  await node.clock.settle();
  const refused = node.edge.last.open().read();
  await node.clock.settle();
  expect(refused.story).toEqual(["error capacity_exhausted"]);
  stop.reject(new RuntimeError("cancelled", "at last"));
  await node.clock.settle();
  const served = node.edge.last.open().read();
  await node.clock.settle();
  expect(served.story).toEqual(["start 200", "end"]);
  await node.end();
});

test("a server that is down is no reason not to be ready: it is asked until it is back, and each change is told", async () => {
  let health: ProviderHealth = { health: "offline", reason: "connection refused" };
  let asked = 0;
  const { adapter } = scriptedAdapter({
    health: () => {
      asked++;
      return Promise.resolve(health);
    },
  });
  const node = await runNode(adapter);
  const side = node.edge.last;
  await side.welcome([{ id: "p" }]);
  expect(side.ready.providers).toMatchObject([{ health: Health.OFFLINE, reason: "connection refused" }]);
  const refused = side.open().read();
  await node.clock.settle();
  expect(refused.story).toEqual(["error provider_unavailable"]);
  await node.clock.advance(10_000);
  expect([asked, side.statuses]).toEqual([3, []]);
  health = { health: "degraded", reason: "loading" };
  await node.clock.advance(5_000);
  health = { health: "ok" };
  await node.clock.advance(5_000);
  expect(side.statuses).toEqual([`p=${Health.DEGRADED}`, `p=${Health.OK}`]);
  expect(node.told).toEqual(["provider p offline", "ready edge-1", "provider p degraded", "provider p ok"]);
  const before = asked;
  await node.clock.advance(60_000);
  expect(asked).toBe(before);
  await node.end();
});

test("what a provider knows when the time for its health check is up counts, a failure does not", async () => {
  const { adapter } = scriptedAdapter({
    health: async ({ signal }) => {
      try {
        return await untilAborted(signal);
      } catch {
        return { health: "degraded", reason: "connected" };
      }
    },
  });
  const node = await runNode(adapter);
  node.edge.last.accept([{ id: "p" }]);
  await node.clock.advance(4_999);
  expect(node.edge.last.cases).toEqual(["registerRequest"]);
  await node.clock.advance(1);
  expect(node.edge.last.ready.providers).toMatchObject([{ health: Health.DEGRADED, reason: "connected" }]);
  await node.end();

  const failing = await runNode(scriptedAdapter({ health: ({ signal }) => untilAborted(signal) }).adapter);
  failing.edge.last.accept([{ id: "p" }]);
  await failing.clock.advance(5_000);
  expect(failing.edge.last.ready.providers).toMatchObject([
    { health: Health.OFFLINE, reason: "no answer to the health check: over 5000 ms" },
  ]);
  await failing.end();
});

test("a health check that hangs or throws counts as offline and holds the ready for 7 s at most", async () => {
  let first = true;
  const { adapter } = scriptedAdapter({
    health: () => {
      if (!first) return Promise.reject(new TypeError("the prompt is in here"));
      first = false;
      return Promise.withResolvers<never>().promise;
    },
  });
  const node = await runNode(adapter);
  node.edge.last.accept([{ id: "p" }]);
  await node.clock.advance(6_999);
  expect(node.edge.last.cases).toEqual(["registerRequest"]);
  await node.clock.advance(1);
  expect(node.edge.last.ready.providers).toMatchObject([
    { health: Health.OFFLINE, reason: "no answer to the health check: over 5000 ms" },
  ]);
  node.edge.last.acknowledge();
  await node.clock.advance(10_000);
  expect(node.edge.last.statuses).toEqual([]);
  await node.end();
});

test("a server that cannot be reached is asked at once whether it is still there", async () => {
  let down = false;
  const { adapter } = scriptedAdapter({
    health: () => Promise.resolve({ health: down ? "offline" : "ok" }),
    tunnel: () => {
      down = true;
      return Promise.reject(new RuntimeError("provider_unreachable", "connection refused"));
    },
  });
  const node = await runNode(adapter);
  await node.edge.last.welcome([{ id: "p" }]);
  const work = node.edge.last.open().read();
  await node.clock.settle();
  expect(work.story).toEqual(["error provider_unreachable"]);
  expect(node.edge.last.statuses).toEqual([`p=${Health.OFFLINE}`]);
  down = false;
  await node.clock.advance(5_000);
  expect(node.edge.last.statuses).toEqual([`p=${Health.OFFLINE}`, `p=${Health.OK}`]);
  await node.end();
});

test.each(["create", "start"] as const)(
  "an adapter that calls its configuration wrong in %s ends the node; another failure only that provider",
  async (stage) => {
    const failing = async (error: Error): Promise<Awaited<ReturnType<typeof runNode>>> => {
      const { adapter } = scriptedAdapter({
        create: ({ id }) => {
          if (stage === "create" && id === "bad") throw error;
        },
        start: async () => {
          if (stage === "start") throw error;
        },
      });
      const node = await runNode(adapter);
      node.edge.last.accept([{ id: "bad" }]);
      await node.clock.settle();
      return node;
    };
    const fatal = await failing(new RuntimeError("invalid_config", "endpoint is missing"));
    expect(fatal.outcome?.error).toMatchObject({
      code: "invalid_provider_config",
      message: "provider bad: endpoint is missing",
    });
    const other = await failing(new TypeError("x"));
    expect(other.edge.last.ready.providers).toMatchObject([
      { id: "bad", health: Health.OFFLINE, reason: "the adapter failed (TypeError)" },
    ]);
    await other.end();
    expect(other.outcome).toEqual({});
  },
);

test("a provider that does not start, or does not stop, is not waited for without end", async () => {
  const { adapter, calls } = scriptedAdapter({
    start: () => Promise.withResolvers<never>().promise,
    stop: () => Promise.withResolvers<never>().promise,
  });
  const node = await runNode(adapter, { reconnect: { maxAttempts: 2 } });
  node.edge.last.accept([{ id: "p" }]);
  await node.clock.advance(20_000);
  expect(node.edge.last.ready.providers).toMatchObject([{ reason: "starting: over 15000 ms" }]);
  expect(calls).toEqual(["create p", "start p", "stop p"]);
  await node.end();
  expect(node.outcome).toEqual({});
});
