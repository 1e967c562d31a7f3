import { getEventListeners } from "node:events";
import type { VirtualClock } from "@iop/wire";
import { ProviderHealth, createVirtualClock } from "@iop/wire";
import { describe, expect, test } from "vitest";

import type { Asked, Shape } from "../test/pool-world.ts";
import { PoolWorld } from "../test/pool-world.ts";
import { EdgeError } from "./edge-error.ts";
import type { QueueSettings } from "./admission.ts";

const ONE: Shape = { nodes: { n: { p: 1 } }, models: { m: ["n/p"] } };

function world(
  shape: Shape = ONE,
  settings: Partial<QueueSettings> = {},
): { clock: VirtualClock; at: PoolWorld } {
  const clock = createVirtualClock();
  const at = new PoolWorld(clock, shape, settings);
  at.online(...Object.keys(shape.nodes));
  return { clock, at };
}

function states(asked: readonly Asked[]): string[] {
  return asked.map(({ state }) => state);
}

describe("where there is room", () => {
  test("a place is granted at once, with the way there", async () => {
    const { clock, at } = world();
    const asked = at.ask("m");
    expect(at.resource("n/p").inFlight).toBe(1);
    await asked.settled;
    expect(asked.grant).toMatchObject({
      path: "/v1/chat/completions",
      position: 0,
      waitedMs: 0,
      candidate: { dispatch: { nodeId: "n", providerId: "p", target: "m@p" } },
      lease: { held: true },
    });
    expect([at.pool.waiting, clock.pending]).toEqual([0, 0]);
  });

  test("the preferred provider is taken if it has room and serves the model", async () => {
    const { at } = world({ nodes: { n: { p: 2, q: 1, r: 9 } }, models: { m: ["n/p", "n/q"] } });
    const preferred = at.resource("n/q");
    const asked = [
      at.ask("m", { preferred }),
      at.ask("m", { preferred }),
      at.ask("m", { preferred: at.resource("n/r") }),
    ];
    await asked[2]?.settled;
    expect(states(asked)).toEqual(["n/q", "n/p", "n/p"]);
  });

  test("the target and the weight are those of the model, not of the provider", async () => {
    const { at } = world({
      nodes: { n: { p: 40, q: 40 } },
      models: { even: ["n/p", "n/q"], skew: ["n/p*3", "n/q"] },
    });
    const asked = Array.from({ length: 40 }, () => at.ask("skew"));
    await asked[39]?.settled;
    expect([at.resource("n/p").inFlight, at.resource("n/q").inFlight]).toEqual([30, 10]);
    const even = at.ask("even");
    await even.settled;
    expect(even.grant?.candidate.dispatch.target).toBe("even@q");
  });
});

describe("what cannot be served", () => {
  test.each([
    ["a model that is not there", { model: "x" }, "unknown_model"],
    ["an operation that nobody offers", { operation: "embeddings" }, "unsupported_operation"],
    ["an operation named like an object's own part", { operation: "constructor" }, "unsupported_operation"],
    ["one that is withdrawn", { signal: AbortSignal.abort() }, "cancelled"],
  ])("%s fails at once", async (_what, request, code) => {
    const { clock, at } = world();
    const asked = at.ask("m", request);
    await asked.settled;
    expect(asked.state).toBe(code);
    expect([at.pool.waiting, at.resource("n/p").inFlight, clock.pending]).toEqual([0, 0, 0]);
  });

  test("nobody live: at once", async () => {
    const { at } = world();
    at.offline("n");
    const asked = at.ask("m");
    await asked.settled;
    expect(asked.state).toBe("unavailable");
  });

  test("more that wait than may: at once; but one that was let in before comes back", async () => {
    const { clock, at } = world(ONE, { maxWaiting: 2 });
    const asked = [at.ask("m"), at.ask("m"), at.ask("m"), at.ask("m")];
    await asked[3]?.settled;
    expect(states(asked)).toEqual(["n/p", "waits", "waits", "queue_full"]);
    expect([at.pool.waiting, at.pool.waitingFor("m"), at.pool.waitingFor("x")]).toEqual([2, 2, 0]);
    asked[0]?.grant?.lease.refused();
    const back = at.ask("m", {}, asked[0]?.ticket);
    await clock.settle();
    expect([back.state, at.pool.waiting]).toEqual(["waits", 3]);
  });
});

describe("the order", () => {
  test("is that of arrival, within the higher priority, over all models of a provider", async () => {
    const { clock, at } = world({
      nodes: { n: { p: 1 } },
      models: { a: ["n/p"], b: ["n/p"], c: ["n/p"] },
    });
    const first = at.ask("a");
    const asked = [
      at.ask("a", { priority: 1 }),
      at.ask("b"),
      at.ask("a"),
      at.ask("c", { priority: 5 }),
      at.ask("b", { priority: 1 }),
      at.ask("c"),
    ];
    await first.settled;
    const order: number[] = [];
    for (let free: Asked | undefined = first; free !== undefined;) {
      free.release();
      await clock.settle();
      const next = asked.findIndex((each, index) => each.grant !== undefined && !order.includes(index));
      if (next >= 0) order.push(next);
      free = asked[next];
    }
    expect(order).toEqual([3, 0, 4, 1, 2, 5]);
    expect(asked.map(({ grant }) => grant?.position)).toEqual([1, 2, 3, 1, 3, 6]);
    expect([at.pool.waiting, at.resource("n/p").inFlight, clock.pending]).toEqual([0, 0, 0]);
  });

  test("a free place goes to the oldest over models whose providers only overlap", async () => {
    const { clock, at } = world({
      nodes: { n: { p: 1, q: 1 } },
      models: { both: ["n/p", "n/q"], p: ["n/p"], q: ["n/q"] },
    });
    const [p, q] = [at.ask("p"), at.ask("q")];
    const asked = [at.ask("q"), at.ask("both"), at.ask("p")];
    await p.settled;
    p.release();
    await clock.settle();
    expect(states(asked)).toEqual(["waits", "n/p", "waits"]);
    q.release();
    await clock.settle();
    expect(states(asked)).toEqual(["n/q", "n/p", "waits"]);
  });

  test("long ones that wait for a long place do not hold up normal ones, and get the next long place", async () => {
    const { clock, at } = world({
      nodes: { n: { p: { capacity: 2, long: { capacity: 1, thresholdTokens: 10 } } } },
      models: { m: ["n/p"] },
    });
    const long = at.ask("m", { inputTokens: 10 });
    const second = at.ask("m", { inputTokens: 10, priority: 9 });
    const normal = at.ask("m", { inputTokens: 9 });
    await clock.settle();
    expect(states([long, second, normal])).toEqual(["n/p", "waits", "n/p"]);
    const behind = at.ask("m");
    normal.release();
    await clock.settle();
    expect(states([second, behind])).toEqual(["waits", "n/p"]);
    long.release();
    await clock.settle();
    expect(second.state).toBe("n/p");
  });

  test("one that is long for some providers waits for none that it is not long for", async () => {
    const { clock, at } = world({
      nodes: {
        n: {
          strict: { capacity: 1, long: { capacity: 0, thresholdTokens: 10 } },
          mild: { capacity: 1, long: { capacity: 0, thresholdTokens: 100 } },
        },
      },
      models: { m: ["n/strict", "n/mild"] },
    });
    const blocked = at.ask("m", { inputTokens: 100 });
    const first = at.ask("m", { inputTokens: 50 });
    const waiting = at.ask("m", { inputTokens: 50 });
    await clock.settle();
    expect(states([blocked, first, waiting])).toEqual(["waits", "n/mild", "waits"]);
    first.release();
    await clock.settle();
    expect(states([blocked, waiting])).toEqual(["waits", "n/mild"]);
  });

  test("is kept by one that comes back", async () => {
    const { clock, at } = world();
    const first = at.ask("m");
    const second = at.ask("m");
    await first.settled;
    first.grant?.lease.refused();
    const back = at.ask("m", {}, first.ticket);
    await clock.advance(99);
    expect(states([back, second])).toEqual(["waits", "waits"]);
    await clock.advance(1);
    expect(states([back, second])).toEqual(["n/p", "waits"]);
    expect(back.grant).toMatchObject({ position: 2, waitedMs: 100 });
  });
});

describe("the deadline", () => {
  test("ends the wait, from the submission on", async () => {
    const { clock, at } = world(ONE, { timeoutMs: 500 });
    const holder = at.ask("m");
    const asked = at.ask("m");
    await clock.advance(499);
    expect(asked.state).toBe("waits");
    await clock.advance(1);
    expect(asked.state).toBe("queue_timeout");
    holder.release();
    expect([at.pool.waiting, at.resource("n/p").inFlight, clock.pending]).toEqual([0, 0, 0]);
  });

  test("covers all attempts: who comes back late does not wait again, but takes what is free", async () => {
    const { clock, at } = world(
      { nodes: { n: { p: 1, q: 1 } }, models: { m: ["n/p", "n/q"] } },
      { timeoutMs: 500 },
    );
    const asked = at.ask("m");
    await clock.advance(400);
    asked.grant?.lease.refused();
    const again = at.ask("m", {}, asked.ticket);
    await again.settled;
    expect(again.state).toBe("n/q");
    await clock.advance(99);
    again.grant?.lease.refused();
    const waits = at.ask("m", {}, asked.ticket);
    await clock.advance(1);
    expect(waits.state).toBe("n/p");
    waits.grant?.lease.refused();
    const late = at.ask("m", {}, asked.ticket);
    await late.settled;
    expect(late.state).toBe("queue_timeout");
  });

  test("is each one's own: that of one who comes back is before those of all who came later", async () => {
    const { clock, at } = world(ONE, { timeoutMs: 500 });
    const first = at.ask("m");
    await clock.advance(100);
    const second = at.ask("m");
    first.grant?.lease.refused();
    // Full for as long as it takes.
    for (let count = 0; count < 3; count++) at.ask("m", { priority: 9 });
    const back = at.ask("m", {}, first.ticket);
    await clock.advance(399);
    expect(states([back, second])).toEqual(["waits", "waits"]);
    await clock.advance(1);
    expect(states([back, second])).toEqual(["queue_timeout", "waits"]);
    await clock.advance(100);
    expect(second.state).toBe("queue_timeout");
  });

  test("ends all who have the same at once", async () => {
    const { clock, at } = world(ONE, { timeoutMs: 500 });
    const asked = [at.ask("m"), at.ask("m"), at.ask("m"), at.ask("m")];
    await clock.advance(500);
    expect(states(asked)).toEqual(["n/p", "queue_timeout", "queue_timeout", "queue_timeout"]);
    expect([at.pool.waiting, clock.pending]).toEqual([0, 0]);
  });

  test("of 0: nobody waits", async () => {
    const { at } = world(ONE, { timeoutMs: 0 });
    const [first, second] = [at.ask("m"), at.ask("m")];
    await second.settled;
    expect(states([first, second])).toEqual(["n/p", "queue_timeout"]);
  });
});

describe("without a live provider", () => {
  test("all who wait end at once, and only they", async () => {
    const { clock, at } = world({
      nodes: { a: { p: 1 }, b: { q: 1 } },
      models: { both: ["a/p", "b/q"], a: ["a/p"] },
    });
    const [first, second] = [at.ask("both"), at.ask("both")];
    const asked = [at.ask("a"), at.ask("both")];
    await clock.settle();
    expect(states([first, second])).toEqual(["a/p", "b/q"]);
    at.offline("a");
    await clock.settle();
    expect(states(asked)).toEqual(["unavailable", "waits"]);
    at.offline("b");
    await clock.settle();
    expect(asked[1]?.state).toBe("unavailable");
    expect([at.pool.waiting, clock.pending]).toEqual([0, 0]);
  });

  test.each([
    ["it drains", (at: PoolWorld) => at.drain("n")],
    ["it says that it is offline", (at: PoolWorld) => at.report("n/p", ProviderHealth.OFFLINE)],
  ])("the same where %s", async (_what, end) => {
    const { clock, at } = world();
    at.ask("m");
    const asked = at.ask("m");
    end(at);
    await clock.settle();
    expect(asked.state).toBe("unavailable");
  });

  test("nobody is granted a place of the dying generation", async () => {
    const { clock, at } = world({ nodes: { n: { p: 1, q: 1 } }, models: { m: ["n/p", "n/q"], p: ["n/p"] } });
    const held = [at.ask("m"), at.ask("m")];
    const asked = [at.ask("p"), at.ask("m")];
    await clock.settle();
    at.offline("n");
    for (const each of held) each.release();
    await clock.settle();
    expect(states(asked)).toEqual(["unavailable", "unavailable"]);
    at.online("n");
    expect(at.resource("n/p").inFlight + at.resource("n/q").inFlight).toBe(0);
  });

  test("with a grace each waits as long since it was so, and a return serves who is left", async () => {
    const { clock, at } = world(ONE, { offlineGraceMs: 1_000 });
    at.ask("m");
    const first = at.ask("m");
    await clock.advance(5_000);
    at.offline("n");
    await clock.advance(600);
    const second = at.ask("m");
    await clock.advance(399);
    expect(states([first, second])).toEqual(["waits", "waits"]);
    await clock.advance(1);
    expect(states([first, second])).toEqual(["unavailable", "waits"]);
    await clock.advance(599);
    at.online("n");
    await clock.settle();
    expect(second.state).toBe("n/p");
    const third = at.ask("m");
    await clock.advance(5_000);
    expect(third.state).toBe("waits");
    at.offline("n");
    await clock.advance(1_000);
    expect(third.state).toBe("unavailable");
    expect(clock.pending).toBe(0);
  });
});

describe("withdrawing", () => {
  test("while it waits ends it; nothing is left of it", async () => {
    const { clock, at } = world();
    const holder = at.ask("m");
    const abort = new AbortController();
    const asked = [at.ask("m", { signal: abort.signal }), at.ask("m")];
    abort.abort();
    expect(at.pool.waiting).toBe(1);
    await clock.settle();
    expect(states(asked)).toEqual(["cancelled", "waits"]);
    holder.release();
    await clock.settle();
    expect(asked[1]?.state).toBe("n/p");
    expect([clock.pending, getEventListeners(abort.signal, "abort").length]).toEqual([0, 0]);
  });

  test("once it is granted changes nothing, even before the caller has its turn", async () => {
    const { clock, at } = world();
    const holder = at.ask("m");
    const abort = new AbortController();
    const asked = at.ask("m", { signal: abort.signal });
    await holder.settled;
    holder.release();
    abort.abort();
    await clock.settle();
    expect([asked.state, at.resource("n/p").inFlight]).toEqual(["n/p", 1]);
    asked.release();
    expect([at.resource("n/p").inFlight, clock.pending]).toEqual([0, 0]);
  });

  test("a place that is lost before the caller has its turn is not held", async () => {
    const { clock, at } = world();
    const holder = at.ask("m");
    const asked = at.ask("m");
    await holder.settled;
    holder.release();
    at.offline("n");
    at.online("n");
    await clock.settle();
    expect([asked.state, asked.grant?.lease.held]).toEqual(["n/p", false]);
  });
});

describe("another configuration", () => {
  test("moves who waits, in order, and ends those who have nothing there", async () => {
    const { clock, at } = world({
      nodes: { n: { p: 1 }, o: { q: 1 } },
      models: { a: ["n/p"], b: ["n/p"], gone: ["n/p"] },
    });
    const holder = at.ask("a");
    const asked = [at.ask("b"), at.ask("gone"), at.ask("a"), at.ask("b", { priority: 1 }), at.ask("a")];
    await holder.settled;
    at.reload({ nodes: { n: { p: 1 }, o: { q: 1 } }, models: { a: ["n/p", "o/q"], b: ["n/p"] } });
    await clock.settle();
    // What the other provider can serve now is served at once.
    expect(states(asked)).toEqual(["waits", "unknown_model", "o/q", "waits", "waits"]);
    expect(at.pool.waitingFor("gone")).toBe(0);
    const order: string[] = [];
    for (let free = holder; order.length < 3;) {
      free.release();
      await clock.settle();
      const next = asked.find(({ grant }) => grant?.candidate.dispatch.nodeId === "n" && grant.lease.held);
      if (next === undefined) break;
      order.push(String(asked.indexOf(next)));
      free = next;
    }
    expect(order).toEqual(["3", "0", "4"]);
    expect(at.pool.waiting).toBe(0);
  });

  test("with more capacity serves at once, the oldest first", async () => {
    const { clock, at } = world();
    const asked = [at.ask("m"), at.ask("m"), at.ask("m"), at.ask("m")];
    at.reload({ nodes: { n: { p: 3 } }, models: ONE.models });
    await clock.settle();
    expect(states(asked)).toEqual(["n/p", "n/p", "n/p", "waits"]);
  });

  test("gives up nobody in between: not before all of it holds", async () => {
    const { clock, at } = world({ nodes: { n: { p: 1 }, o: { q: 1 } }, models: { m: ["n/p"], o: ["o/q"] } });
    const holder = [at.ask("m"), at.ask("o")];
    const asked = at.ask("m");
    await holder[0]?.settled;
    at.reload({ nodes: { o: { q: 1 } }, models: { m: ["o/q"], o: ["o/q"] } }, () => at.drain("n"));
    await clock.settle();
    expect(asked.state).toBe("waits");
    holder[1]?.release();
    await clock.settle();
    expect(asked.state).toBe("o/q");
  });

  test("that its Node is about to accept keeps who waits, and one that it refuses does not", async () => {
    const { clock, at } = world();
    const holder = at.ask("m");
    const asked = at.ask("m");
    await holder.settled;
    const generation = at.generation("n") ?? 0;
    at.reload({ nodes: { n: { p: 2 } }, models: ONE.models }, () =>
      at.ledger.hold("n", generation, "p", { reason: "changes", pending: true }),
    );
    const next = at.ask("m");
    await clock.settle();
    expect(states([asked, next])).toEqual(["waits", "waits"]);
    at.ledger.accept("n", generation, "p");
    await clock.settle();
    expect(states([asked, next])).toEqual(["n/p", "waits"]);
    at.ledger.hold("n", generation, "p", { reason: "no", pending: false });
    await clock.settle();
    expect(next.state).toBe("unavailable");
  });

  test("leaves alone who withdraws while it is applied, or right after", async () => {
    const { clock, at } = world();
    const holder = at.ask("m");
    const aborts = [new AbortController(), new AbortController()];
    const asked = aborts.map(({ signal }) => at.ask("m", { signal }));
    await holder.settled;
    at.reload(ONE, () => aborts[0]?.abort());
    aborts[1]?.abort();
    await clock.settle();
    expect(states(asked)).toEqual(["cancelled", "cancelled"]);
    const gone = new AbortController();
    const given = at.ask("m", { signal: gone.signal });
    at.reload({ ...ONE, models: {} });
    gone.abort();
    await clock.settle();
    expect(given.state).toBe("unknown_model");
    holder.release();
    expect([at.pool.waiting, at.resource("n/p").inFlight, clock.pending]).toEqual([0, 0, 0]);
  });

  test("without a live provider for those who wait ends them", async () => {
    const { clock, at } = world();
    at.ask("m");
    const asked = at.ask("m");
    at.reload({ nodes: { n: { p: 1 }, off: { q: 1 } }, models: { m: ["off/q"] } });
    await clock.settle();
    expect(asked.state).toBe("unavailable");
    expect(clock.pending).toBe(0);
  });
});

test("closing ends all who wait and all who come; what is granted stays", async () => {
  const { clock, at } = world(ONE, { offlineGraceMs: 1_000 });
  const [first, second] = [at.ask("m"), at.ask("m")];
  at.pool.close(new EdgeError("draining", "the end"));
  at.pool.close(new EdgeError("internal", "again"));
  const third = at.ask("m");
  await clock.settle();
  expect(states([first, second, third])).toEqual(["n/p", "draining", "draining"]);
  first.release();
  at.offline("n");
  expect([at.pool.waiting, clock.pending]).toEqual([0, 0]);
});
