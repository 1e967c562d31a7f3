import { RuntimeError } from "@iop/agent-runtime";
import { ProviderHealth as Health } from "@iop/wire";
import { expect, test } from "vitest";

import { runNode } from "./testing/running-node.ts";
import { bytes, respond, scriptedAdapter, untilAborted } from "./testing/scripted-adapter.ts";

/** A body of which one chunk comes at once, and the rest when `finish` is called. */
function slowBody(): { readonly body: AsyncIterable<Uint8Array>; readonly finish: () => void } {
  const { promise, resolve } = Promise.withResolvers<void>();
  async function* chunks(): AsyncGenerator<Uint8Array> {
    yield bytes("first ");
    await promise;
    yield bytes("last");
  }
  return { body: chunks(), finish: resolve };
}

test("only what changed is rebuilt; each provider is answered for, behind its status", async () => {
  const { adapter, calls } = scriptedAdapter({});
  const node = await runNode(adapter);
  const side = node.edge.last;
  await side.welcome([{ id: "same" }, { id: "changed" }, { id: "gone" }]);
  calls.length = 0;
  node.told.length = 0;
  side.messages.length = 0;
  side.refresh(8n, [{ id: "changed", capacity: 5 }, { id: "new" }, { id: "same" }]);
  await node.clock.settle();
  expect(calls.toSorted()).toEqual([
    "create changed",
    "create new",
    "start changed",
    "start new",
    "stop changed",
    "stop gone",
  ]);
  expect(side.cases.at(-1)).toBe("configRefreshResponse");
  expect(side.refreshed).toEqual(["8 changed=accepted new=accepted same=accepted"]);
  expect(side.statuses).toEqual([`changed=${Health.OK}`, `new=${Health.OK}`]);
  expect(node.told).toEqual([
    "provider changed ok",
    "provider new ok",
    "reconfigured 8 changed=true new=true same=true",
  ]);
  const gone = side.open({ providerId: "gone" }).read();
  const served = side.open({ providerId: "new" }).read();
  await node.clock.settle();
  expect([gone.story, served.story]).toEqual([["error unknown_provider"], ["start 200", "end"]]);
  await node.end();
});

test.each([
  ["is replaced", [{ id: "p", endpoint: "http://127.0.0.1:9000" }]],
  ["is removed", []],
  ["is refused", [{ id: "p", endpoint: "http://10.0.0.1:9000" }]],
])(
  "what runs on an instance that %s goes on to its end, and only then is it stopped",
  async (_name, next) => {
    const slow = slowBody();
    let asked = 0;
    const { adapter, calls } = scriptedAdapter({
      tunnel: async () => respond(asked++ === 0 ? slow.body : [bytes("new")]),
    });
    const node = await runNode(adapter);
    const side = node.edge.last;
    await side.welcome([{ id: "p", capacity: 2 }]);
    const running = side.open().read();
    await node.clock.settle();
    side.refresh(8n, next);
    await node.clock.advance(600_000);
    expect(side.refreshed).toHaveLength(1);
    expect(calls).not.toContain("stop p");
    expect(running.story).toEqual(["start 200", "body"]);
    slow.finish();
    await node.clock.settle();
    expect([running.story, running.body.toString()]).toEqual([["start 200", "body", "end"], "first last"]);
    await node.clock.settle();
    expect(calls.filter((call) => call === "stop p")).toHaveLength(1);
    await node.end();
  },
);

test("a request whose body is still coming belongs to the instance that it was sent to", async () => {
  const { adapter, calls } = scriptedAdapter({ tunnel: async () => respond([bytes("answer")]) });
  const node = await runNode(adapter);
  const side = node.edge.last;
  await side.welcome([{ id: "p" }]);
  // Longer than the stream's window, so that it stops halfway until the Node takes it, in the same turns as the change.
  const running = side.open({}, [new Uint8Array(600_000)]).read();
  side.refresh(8n, []);
  await node.clock.settle();
  expect(running.story).toEqual(["start 200", "body", "end"]);
  expect(calls).toEqual(["create p", "start p", "tunnel p", "stop p"]);
  await node.end();
});

test("old and new work share the places of a name", async () => {
  const slow = slowBody();
  let asked = 0;
  const { adapter, calls } = scriptedAdapter({
    tunnel: async () => respond(asked++ === 0 ? slow.body : slowBody().body),
  });
  const node = await runNode(adapter);
  const side = node.edge.last;
  await side.welcome([{ id: "p", capacity: 1 }]);
  const old = side.open().read();
  await node.clock.settle();
  side.refresh(8n, [{ id: "p", capacity: 1, idleTimeoutMs: 5 }]);
  await node.clock.settle();
  const crowded = side.open().read();
  await node.clock.settle();
  expect(crowded.story).toEqual(["error capacity_exhausted"]);
  slow.finish();
  await node.clock.settle();
  const next = side.open().read();
  await node.clock.settle();
  expect([old.story.at(-1), next.story]).toEqual(["end", ["start 200", "body"]]);
  // Stopped although the name has work: it is the next one's.
  expect(calls.filter((call) => call === "stop p")).toHaveLength(1);
  await node.end();
});

test("a provider that cannot be had is answered for with the reason, and is no reason to end", async () => {
  const { adapter } = scriptedAdapter({
    create: ({ id }) => {
      if (id === "wrong") throw new RuntimeError("invalid_config", "endpoint: must be absent");
    },
    start: ({ signal }) => untilAborted(signal),
  });
  const plain = scriptedAdapter({});
  const node = await runNode({
    kind: "scripted",
    create: (config, context) => (config.id === "fine" ? plain : { adapter }).adapter.create(config, context),
  });
  const side = node.edge.last;
  await side.welcome([{ id: "fine" }]);
  side.refresh(8n, [
    { id: "fine" },
    { id: "wrong" },
    { id: "slow" },
    { id: "secret", authEnv: "AWS_SECRET" },
    { id: "kind", adapter: "none" },
    { id: "twice" },
    { id: "twice" },
  ]);
  await node.clock.advance(14_999);
  expect(side.refreshed).toEqual([]);
  const meanwhile = side.open({ providerId: "fine" }).read();
  await node.clock.advance(10);
  expect(meanwhile.story).toEqual(["start 200", "end"]);
  expect(side.refreshed).toEqual([
    [
      "8 fine=accepted",
      "wrong=endpoint: must be absent",
      "slow=starting: over 15000 ms",
      'secret=variable "AWS_SECRET" is not in this node\'s allow.env',
      'kind=there is no adapter "none" here',
      "twice=configured more than once",
    ].join(" "),
  ]);
  const refused = side.open({ providerId: "secret" }).read();
  await node.clock.settle();
  expect(refused.errorMessage).toContain("allow.env");
  expect(node.outcome).toBeUndefined();
  await node.end();
});

test("one at a time; of those that wait the newest", async () => {
  let release = Promise.withResolvers<void>();
  const { adapter, calls } = scriptedAdapter({ start: () => release.promise });
  release.resolve();
  const node = await runNode(adapter);
  const side = node.edge.last;
  await side.welcome([{ id: "p", capacity: 1 }]);
  release = Promise.withResolvers();
  for (const revision of [2n, 3n, 4n]) side.refresh(revision, [{ id: "p", capacity: Number(revision) }]);
  await node.clock.settle();
  expect(calls.filter((call) => call === "create p")).toHaveLength(2);
  expect(side.refreshed).toEqual([]);
  release.resolve();
  await node.clock.settle();
  expect(side.refreshed).toEqual(["2 p=accepted", "4 p=accepted"]);
  expect(calls.filter((call) => call === "create p")).toHaveLength(3);
  await node.end();
});

test("an edge that goes while a change is being applied: the next session starts from what it is told", async () => {
  let starts = 0;
  let stops = 0;
  const { adapter, calls } = scriptedAdapter({
    start: ({ signal }) => (++starts === 2 ? untilAborted(signal) : Promise.resolve()),
    // One that does not get rid of what its start left behind: 5 s are waited for it, and its name is not free before.
    stop: () => (++stops === 1 ? Promise.withResolvers<never>().promise : Promise.resolve()),
    tunnel: (_request, { signal }) => untilAborted(signal),
  });
  const node = await runNode(adapter, { reconnect: { intervalMs: 100 } });
  const side = node.edge.last;
  await side.welcome([{ id: "p", capacity: 1 }]);
  side.open().read();
  await node.clock.settle();
  side.refresh(8n, [{ id: "p", capacity: 2 }]);
  await node.clock.settle();
  node.transport.links[0]?.cut();
  await node.clock.advance(200);
  if (node.edge.sessions.length > 1) node.edge.last.accept([{ id: "p", capacity: 2 }]);
  await node.clock.advance(5_000);
  expect(node.edge.sessions).toHaveLength(2);
  await node.edge.last.welcome([{ id: "p", capacity: 2 }]);
  expect(node.edge.last.ready.providers).toMatchObject([{ id: "p", health: Health.OK, inFlight: 0 }]);
  expect(calls.filter((call) => call === "stop p")).toHaveLength(2);
  await node.end();
  expect(calls.filter((call) => call === "stop p")).toHaveLength(3);
});

test("the old instance of a session that is lost has 5 s to end its work", async () => {
  const { adapter, calls } = scriptedAdapter({ tunnel: () => Promise.withResolvers<never>().promise });
  const node = await runNode(adapter, { reconnect: { intervalMs: 60_000 } });
  const side = node.edge.last;
  await side.welcome([{ id: "p" }]);
  side.open().read();
  await node.clock.settle();
  side.refresh(8n, []);
  await node.clock.advance(100_000);
  expect(calls).not.toContain("stop p");
  node.transport.links[0]?.cut();
  await node.clock.advance(4_999);
  expect(calls).not.toContain("stop p");
  await node.clock.advance(1);
  expect(calls).toContain("stop p");
  await node.end();
  expect(node.outcome).toEqual({});
});

test("during a shutdown nothing is changed any more, and what was being changed is dropped", async () => {
  const slow = slowBody();
  let starting = false;
  const { adapter, calls } = scriptedAdapter({
    start: ({ signal }) => (starting ? untilAborted(signal) : Promise.resolve()),
    tunnel: async () => respond(slow.body),
  });
  const node = await runNode(adapter);
  const side = node.edge.last;
  await side.welcome([{ id: "p" }]);
  const running = side.open().read();
  await node.clock.settle();
  starting = true;
  side.refresh(8n, [{ id: "p" }, { id: "half" }]);
  await node.clock.settle();
  node.shutdown.abort();
  await node.clock.settle();
  side.refresh(9n, [{ id: "late" }]);
  await node.clock.advance(1_000);
  slow.finish();
  await node.clock.advance(1_000);
  expect(running.body.toString()).toBe("first last");
  expect(side.refreshed).toEqual([]);
  expect(calls).not.toContain("create late");
  expect(node.outcome).toEqual({});
  await node.end();
});

test("before a ready there is nothing to change", async () => {
  const { adapter, calls } = scriptedAdapter({});
  const node = await runNode(adapter);
  node.edge.last.refresh(8n, [{ id: "p" }]);
  await node.clock.settle();
  expect(calls).toEqual([]);
  await node.edge.last.welcome([{ id: "q" }]);
  expect(node.edge.last.refreshed).toEqual([]);
  expect(calls).toEqual(["create q", "start q"]);
  await node.end();
});
