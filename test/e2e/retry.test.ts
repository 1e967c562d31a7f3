import { createProvider } from "@iop/reference-provider";
import { afterEach, describe, expect, test } from "vitest";

import { brief, chat, forget, header } from "../support/chat.ts";
import { metric } from "../support/metric.ts";
import { refusingNode } from "../support/refusing-node.ts";
import { MODEL, type Stack, startStack } from "../support/stack.ts";

let stack: Stack | undefined;
afterEach(async () => {
  await stack?.[Symbol.asyncDispose]();
  stack = undefined;
});

describe("a request whose Node refuses it", () => {
  test("waits, asks again after longer and longer pauses, and is served once", async () => {
    stack = await startStack({ start: "edge", capacity: 8, edge: { queue: { timeout_sec: 20 } } });
    await using node = await refusingNode(stack, 4);
    const answering = chat(stack);
    await stack.until(({ nodes: [only] }) => only?.providers[0]?.saturated === true);
    const end = await answering;
    expect(brief(end)).toBe("200 whole");
    expect(Number(header(end, "x-iop-queue-wait-ms"))).toBeGreaterThanOrEqual(1_500);
    // It waited 100 + 200 + 400 + 800 ms, and asked after each.
    expect(node.asked).toHaveLength(5);
    expect(new Set(node.asked).size).toBe(1);
    const { nodes } = await stack.until(({ streams }) => streams === 0);
    expect(nodes[0]?.providers[0]).toMatchObject({ in_flight: { normal: 0 }, quarantined: 0 });
    expect(nodes[0]?.providers[0]?.saturated).toBeUndefined();
    expect(await metric(stack, "iop_requests_total")).toBe(1);
    expect(await metric(stack, "iop_request_attempts_total")).toBe(5);
  });

  test("for longer than it may wait, fails with 429 and is not asked for again", async () => {
    stack = await startStack({ start: "edge", capacity: 8, edge: { queue: { timeout_sec: 0.5 } } });
    await using node = await refusingNode(stack, Number.POSITIVE_INFINITY);
    const end = await chat(stack);
    expect(brief(end)).toBe("429 whole");
    expect(header(end, "x-iop-queue-reason")).toBe("queue_timeout");
    expect(header(end, "x-iop-queue-position")).toBe("1");
    expect(Number(header(end, "x-iop-queue-wait-ms"))).toBeGreaterThanOrEqual(500);
    expect(header(end, "retry-after")).toBe("1");
    expect(node.asked).toHaveLength(3);
  });
});

describe("a provider that is down", () => {
  test("loses nothing where another one serves the model", async () => {
    await using other = createProvider();
    const endpoint = await other.listen();
    stack = await startStack({
      capacity: 32,
      models: { other: endpoint },
      adapt: (file) => ({
        ...file,
        models: {
          [MODEL]: {
            candidates: ["other", "p1"].map((provider) => ({ node: "node-1", provider, target: "iop-demo" })),
          },
        },
      }),
    });
    await stack.until(({ models }) => models[0]?.live === 2);
    await other[Symbol.asyncDispose]();
    await forget(stack.providerUrl);
    const running = stack;
    const ends = await Promise.all(Array.from({ length: 60 }, () => chat(running)));
    expect(ends.map(brief)).toEqual(Array(60).fill("200 whole"));
    expect(new Set(ends.map((end) => header(end, "x-iop-provider")))).toEqual(new Set(["p1"]));
    await stack.idle();
    expect(stack.provider.state()).toMatchObject({ requests: 60, completed: 60 });
    expect(await metric(stack, "iop_requests_total")).toBe(60);
    expect(await metric(stack, "iop_request_attempts_total")).toBeGreaterThan(60);
  });
});
