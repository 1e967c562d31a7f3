import { type Connection, GoAwayCode, WireError } from "@iop/wire";
import { expect, test } from "vitest";

import { runNode } from "./testing/running-node.ts";
import { bytes, respond, scriptedAdapter, untilAborted } from "./testing/scripted-adapter.ts";

test("a dial that fails is tried again at the same pace until the attempts are used up", async () => {
  let dials = 0;
  const transport = {
    dial: () => {
      dials++;
      return Promise.reject(new Error("refused"));
    },
    listen: () => Promise.reject(),
  };
  const node = await runNode(scriptedAdapter({}).adapter, {
    transport,
    reconnect: { maxAttempts: 3, intervalMs: 1_000 },
  });
  await node.clock.advance(1_999);
  expect([dials, node.outcome]).toEqual([2, undefined]);
  await node.clock.advance(1);
  expect(node.told).toEqual(["retry 2 1000", "retry 3 1000"]);
  expect(dials).toBe(3);
  expect(node.outcome?.error).toMatchObject({ code: "exhausted" });
  expect(String(node.outcome?.error)).toContain("refused");
  expect(node.clock.pending).toBe(0);
});

test("an edge whose certificate is rejected is not dialled again", async () => {
  let dials = 0;
  const rejected = new WireError("certificate_rejected", "edge:7443: the certificate has expired");
  const transport = {
    dial: () => {
      dials++;
      return Promise.reject(rejected);
    },
    listen: () => Promise.reject(),
  };
  const node = await runNode(scriptedAdapter({}).adapter, { transport, reconnect: { maxAttempts: 0 } });
  expect(node.outcome?.error).toMatchObject({
    name: "NodeError",
    code: "certificate_rejected",
    message: rejected.message,
    cause: rejected,
  });
  await node.clock.advance(100_000);
  expect([dials, node.told, node.clock.pending]).toEqual([1, [], 0]);
});

test("a dial that never answers is given up after 10 s, and one that comes too late is destroyed", async () => {
  let destroyed = 0;
  const dial = Promise.withResolvers<Connection>();
  const transport = {
    dial: () => dial.promise,
    listen: () => Promise.reject(),
  };
  const node = await runNode(scriptedAdapter({}).adapter, { transport, reconnect: { maxAttempts: 1 } });
  await node.clock.advance(10_000);
  expect(node.outcome?.error).toMatchObject({ code: "exhausted" });
  dial.resolve({
    remote: "late",
    queuedBytes: 0,
    open: () => {},
    write: () => {},
    end: () => {},
    destroy: () => {
      destroyed++;
    },
  });
  await node.clock.settle();
  expect(destroyed).toBe(1);
});

test("a lost session is dialled again with the same instance id; one that was ready for 30 s starts the count over", async () => {
  const node = await runNode(scriptedAdapter({}).adapter, { reconnect: { maxAttempts: 3 } });
  const lose = async (readyMs: number): Promise<void> => {
    await node.edge.last.welcome([]);
    await node.clock.advance(readyMs);
    node.transport.links[0]?.cut();
    await node.clock.settle();
  };
  await lose(29_000);
  await node.clock.advance(10_000);
  await lose(0);
  expect(node.told.filter((line) => line.startsWith("retry"))).toEqual(["retry 2 10000", "retry 3 10000"]);
  await node.clock.advance(10_000);
  await lose(30_000);
  expect(node.told.at(-1)).toBe("retry 1 10000");
  expect(node.told.filter((line) => line.startsWith("disconnected"))).toHaveLength(3);
  await node.clock.advance(10_000);
  const ids = node.edge.sessions.map((side) => side.registration.instanceId);
  expect(ids).toHaveLength(4);
  expect(new Set(ids).size).toBe(1);
  await node.end();
  expect(node.outcome).toEqual({});
});

test("unlimited attempts go on until shutdown, which ends the wait at once", async () => {
  const node = await runNode(scriptedAdapter({}).adapter, {
    reconnect: { maxAttempts: 0, intervalMs: 1_000 },
    transport: { dial: () => Promise.reject(new Error("refused")), listen: () => Promise.reject() },
  });
  await node.clock.advance(100_000);
  expect(node.told.at(-1)).toBe("retry 102 1000");
  node.shutdown.abort();
  await node.clock.settle();
  expect(node.outcome).toEqual({});
  expect(node.clock.pending).toBe(0);
});

test("an edge that drains is not dialled before it has closed, and then as late as it asked", async () => {
  const { adapter } = scriptedAdapter({
    tunnel: () => Promise.resolve(respond([bytes("still served")])),
  });
  const node = await runNode(adapter);
  const side = node.edge.last;
  await side.welcome([{ id: "p" }]);
  side.session.goAway(GoAwayCode.DRAINING, "maintenance", 30_000);
  await node.clock.advance(60_000);
  expect(node.told.at(-1)).toBe("edge draining");
  expect(node.edge.sessions).toHaveLength(1);
  const work = side.open().read();
  await node.clock.settle();
  expect(work.story).toEqual(["start 200", "body", "end"]);

  side.session.close(GoAwayCode.DRAINING, "maintenance");
  await node.clock.settle();
  expect(node.told.at(-1)).toBe("retry 1 33000");
  await node.clock.advance(32_999);
  expect(node.edge.sessions).toHaveLength(1);
  await node.clock.advance(1);
  expect(node.edge.sessions).toHaveLength(2);
  await node.end();
});

test("a node that another process has taken over leaves it that for 60 s, or ten intervals", async () => {
  for (const [intervalMs, waitMs] of [
    [10_000, 66_000],
    [1_000, 10_000],
  ] as const) {
    const node = await runNode(scriptedAdapter({}).adapter, { reconnect: { maxAttempts: 0, intervalMs } });
    await node.edge.last.welcome([]);
    node.edge.last.session.close(GoAwayCode.SUPERSEDED, "another process");
    await node.clock.settle();
    expect(node.told.at(-1)).toBe(`retry 2 ${waitMs}`);
    await node.clock.advance(waitMs - 1);
    expect(node.edge.sessions).toHaveLength(1);
    await node.clock.advance(1);
    expect(node.edge.sessions).toHaveLength(2);
    await node.end();
  }
});

test("a lost edge cancels the work; the gate is free for the next session", async () => {
  let aborted = 0;
  const { adapter, calls } = scriptedAdapter({
    tunnel: async (_, { signal }) => {
      try {
        return await untilAborted(signal);
      } finally {
        aborted++;
      }
    },
  });
  const node = await runNode(adapter);
  await node.edge.last.welcome([{ id: "p", capacity: 1 }]);
  node.edge.last.open().read();
  await node.clock.settle();
  node.transport.links[0]?.cut();
  await node.clock.settle();
  expect(aborted).toBe(1);
  await node.clock.advance(10_000);
  await node.edge.last.welcome([{ id: "p", capacity: 1 }]);
  expect(node.edge.last.ready.providers).toMatchObject([{ inFlight: 0 }]);
  const work = node.edge.last.open().read();
  await node.clock.settle();
  expect(work.story).toEqual([]);
  expect(calls).toEqual(["create p", "start p", "tunnel p", "tunnel p"]);
  await node.end();
});

test("shutdown lets running work end, refuses new work, then closes", async () => {
  const go = Promise.withResolvers<void>();
  const { adapter, calls } = scriptedAdapter({
    tunnel: async () => {
      await go.promise;
      return respond([bytes("done")]);
    },
  });
  const node = await runNode(adapter);
  const side = node.edge.last;
  await side.welcome([{ id: "p" }]);
  const running = side.open().read();
  await node.clock.settle();
  node.shutdown.abort();
  await node.clock.advance(1_000);
  expect(side.goAways.map(({ code }) => code)).toEqual([GoAwayCode.DRAINING]);
  const late = side.open().read();
  await node.clock.advance(1_000);
  expect(late.story).toEqual(["error node_draining"]);
  expect([running.story, node.outcome]).toEqual([[], undefined]);
  go.resolve();
  await node.clock.advance(100);
  expect(running.story).toEqual(["start 200", "body", "end"]);
  expect(node.outcome).toEqual({});
  expect(calls).toEqual(["create p", "start p", "tunnel p", "stop p"]);
  await node.end();
});

test("work that outlasts the drain is stopped with its one terminal; a provider that does not stop is not waited for without end", async () => {
  const { adapter } = scriptedAdapter({
    tunnel: (request, { signal }) =>
      request.requestId === "deaf" ? Promise.withResolvers<never>().promise : untilAborted(signal),
  });
  const node = await runNode(adapter, { drainTimeoutMs: 4_000 });
  const side = node.edge.last;
  await side.welcome([{ id: "p" }]);
  const polite = side.open().read();
  const deaf = side.open({ requestId: "deaf" }).read();
  await node.clock.settle();
  node.shutdown.abort();
  await node.clock.advance(4_000);
  expect(polite.story).toEqual([]);
  await node.clock.advance(200);
  expect(polite.story).toEqual(["error node_draining"]);
  expect(polite.ends).toMatchObject([{ cause: "terminal" }]);
  await node.clock.advance(20_000);
  expect(deaf.ends).toMatchObject([{ cause: "connection" }]);
  expect(node.outcome).toEqual({});
  await node.end();
});

test("a request that crosses with the drain is still answered", async () => {
  const node = await runNode(scriptedAdapter({}).adapter);
  const side = node.edge.last;
  await side.welcome([{ id: "p" }]);
  node.shutdown.abort();
  const crossing = side.open().read();
  await node.clock.advance(1_000);
  expect(crossing.story).toEqual(["error node_draining"]);
  expect(node.outcome).toEqual({});
  await node.end();
});

test("a provider is stopped only once its work has ended, also that of a lost session", async () => {
  const socket = Promise.withResolvers<never>();
  const { adapter, calls } = scriptedAdapter({ tunnel: () => socket.promise });
  const node = await runNode(adapter);
  await node.edge.last.welcome([{ id: "p" }]);
  node.edge.last.open();
  await node.clock.settle();
  node.transport.links[0]?.cut();
  await node.clock.settle();
  node.shutdown.abort();
  await node.clock.advance(1_000);
  expect(calls).not.toContain("stop p");
  socket.reject(new Error("closed"));
  await node.clock.settle();
  expect(calls).toContain("stop p");
  expect(node.outcome).toEqual({});
  await node.end();
});
