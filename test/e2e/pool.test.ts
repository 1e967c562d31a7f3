import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";

import { type ChatEnd, brief, chat, forget, header } from "../support/chat.ts";
import { MODEL, type Stack, sha256, startStack } from "../support/stack.ts";

/** Another name of the provider's only model. */
const ALIAS = "alias";
/** A model whose only node never connects. */
const OFFLINE = "offline";
/** Requests that may wait. */
const WAITING = 39;

let stack: Stack;
beforeAll(async () => {
  stack = await startStack({
    capacity: 1,
    edge: { queue: { timeout_sec: 20, max_waiting: WAITING } },
    adapt: (file) => ({
      ...file,
      api_keys: [
        ...file.api_keys,
        { name: "urgent", sha256: sha256("urgent"), priority: 5 },
        { name: "batch", sha256: sha256("batch"), priority: -5 },
      ],
      nodes: [
        ...file.nodes,
        {
          name: "node-2",
          token: { sha256: sha256("node-2") },
          providers: [{ id: "p2", adapter: "openai-compat", endpoint: "http://127.0.0.1:1" }],
        },
      ],
      models: {
        ...file.models,
        [ALIAS]: { candidates: [{ node: "node-1", provider: "p1", target: "iop-demo" }] },
        [OFFLINE]: { candidates: [{ node: "node-2", provider: "p2", target: "iop-demo" }] },
      },
    }),
  });
});
afterEach(() => stack.idle());
afterAll(() => stack[Symbol.asyncDispose]());

const NO_BEHAVIOUR = {};
const nothing = (): void => {};

function ask(model: string, apiKey: string = stack.apiKey): Promise<ChatEnd> {
  return chat({ http: stack.http, apiKey }, NO_BEHAVIOUR, nothing, model);
}

/** Takes the only place until `provider.release()`. */
async function occupy(): Promise<{ readonly end: Promise<ChatEnd> }> {
  const end = chat(stack, { fail: "hang", at: "headers" });
  await stack.provider.when(({ hanging }) => hanging === 1, AbortSignal.timeout(5_000));
  return { end };
}

async function timed<T>(promise: Promise<T>): Promise<readonly [T, number]> {
  const started = performance.now();
  return [await promise, performance.now() - started];
}

describe("a request that cannot be served", () => {
  test("for a model that is not there, fails at once, whoever waits", async () => {
    const first = await occupy();
    const [end, tookMs] = await timed(ask("nonsense"));
    expect(brief(end)).toBe("404 whole");
    expect(tookMs).toBeLessThan(1_000);
    stack.provider.release();
    expect(brief(await first.end)).toBe("200 whole");
  });

  test("for a model whose nodes are all offline, fails at once", async () => {
    const [end, tookMs] = await timed(ask(OFFLINE));
    expect(brief(end)).toBe("503 whole");
    expect(tookMs).toBeLessThan(1_000);
    expect(header(end, "x-iop-queue-reason")).toBe("unavailable");
    expect(header(end, "retry-after")).toBe("2");
    expect(header(end, "x-iop-queue-position")).toBeUndefined();
  });
});

describe("requests that wait", () => {
  test("are served by priority, then in turn, over all names of the model", async () => {
    const first = await occupy();
    const order: string[] = [];
    const ends: Promise<ChatEnd>[] = [];
    const callers = [
      ["batch", "batch", ALIAS],
      ["first", stack.apiKey, MODEL],
      ["second", stack.apiKey, ALIAS],
      ["urgent", "urgent", MODEL],
      ["third", stack.apiKey, MODEL],
    ] as const;
    for (const [name, key, model] of callers) {
      ends.push(
        ask(model, key).then((end) => {
          order.push(name);
          return end;
        }),
      );
      await stack.waiting(ends.length);
    }
    stack.provider.release();
    expect(brief(await first.end)).toBe("200 whole");
    const ended = await Promise.all(ends);
    expect(order).toEqual(["urgent", "first", "second", "third", "batch"]);
    expect(ended.map(brief)).toEqual(Array(5).fill("200 whole"));
    // Of those that go first, counted when it came.
    expect(ended.map((end) => header(end, "x-iop-queue-position"))).toEqual(["1", "1", "2", "1", "4"]);
    for (const end of ended) {
      expect(header(end, "x-iop-queue-reason")).toBe("busy");
      expect(Number(header(end, "x-iop-queue-wait-ms"))).toBeGreaterThan(0);
      expect(header(end, "x-iop-node")).toBe("node-1");
      expect(header(end, "x-iop-provider")).toBe("p1");
      expect(header(end, "x-iop-target")).toBe("iop-demo");
    }
  });

  test("are so many at most: one more is refused before any byte of a stream", async () => {
    const first = await occupy();
    const ends = Array.from({ length: WAITING }, (_, index) => ask(index % 2 === 0 ? MODEL : ALIAS));
    await stack.waiting(WAITING);
    const [end, tookMs] = await timed(ask(MODEL, "urgent"));
    expect(brief(end)).toBe("429 whole");
    expect(tookMs).toBeLessThan(1_000);
    expect(header(end, "retry-after")).toBe("1");
    expect(header(end, "content-type")).toBe("application/json");
    expect(header(end, "x-iop-queue-reason")).toBe("queue_full");
    stack.provider.release();
    expect(brief(await first.end)).toBe("200 whole");
    expect((await Promise.all(ends)).map(brief)).toEqual(Array(WAITING).fill("200 whole"));
  });

  test("40 for two names of a provider of capacity 1: never two at once", async () => {
    await forget(stack.providerUrl);
    const ends = Array.from({ length: 40 }, (_, index) => ask(index % 2 === 0 ? MODEL : ALIAS));
    expect((await Promise.all(ends)).map(brief)).toEqual(Array(40).fill("200 whole"));
    await stack.idle();
    expect(stack.provider.state()).toMatchObject({
      requests: 40,
      completed: 40,
      max_active_requests: 1,
      active_requests: 0,
    });
    const metrics = await (await fetch(`${stack.admin}/metrics`)).text();
    expect(metrics).toContain(`iop_model_waiting{model="${MODEL}"} 0`);
    expect(metrics).toMatch(new RegExp(`iop_queue_wait_seconds_count\\{model="${ALIAS}"\\} \\d\\d`));
  });
});
