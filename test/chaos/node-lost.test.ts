import { describe, expect, test } from "vitest";

import { brief, chat, startStreams } from "../support/chat.ts";
import { type Stack, startStack } from "../support/stack.ts";

/** Spec rule 22: given up 5 s after the last byte, which may itself be up to 2 s old. */
const NOTICED_MS = { least: 2_900, most: 7_000 };

async function running(stack: Stack, count: number): ReturnType<typeof startStreams> {
  const streams = await startStreams(stack, count);
  const { nodes } = await stack.snapshot();
  expect(nodes[0]?.providers[0]?.in_flight.normal).toBe(count);
  return streams;
}

async function timed<T>(promise: Promise<T>): Promise<readonly [T, number]> {
  const started = performance.now();
  return [await promise, performance.now() - started];
}

async function gone(stack: Stack): Promise<void> {
  const [node] = (await stack.snapshot()).nodes;
  expect(node).toMatchObject({
    connected: false,
    providers: [{ status: "unavailable", in_flight: { normal: 0, long: 0 }, quarantined: 0 }],
  });
}

async function serves(stack: Stack): Promise<void> {
  expect(brief(await chat(stack))).toBe("200 whole");
}

describe("a Node process that is lost", () => {
  test("killed under 20 streams: every client is cut at once, the places are free, another process serves", async () => {
    await using stack = await startStack({ capacity: 21 });
    const { ends } = await running(stack, 20);
    stack.node.signal("SIGKILL");
    const [ended, tookMs] = await timed(ends);
    expect(ended).toEqual(Array(20).fill("200 cut"));
    expect(tookMs).toBeLessThan(1_000);
    await gone(stack);
    expect(brief(await chat(stack))).toBe("503 whole");
    await stack.startNode();
    await serves(stack);
    await stack.idle();
    expect(stack.provider.state()).toMatchObject({ aborted: 20, cut: 0 });
  });

  test.concurrent("stopped (SIGSTOP): noticed by the heartbeat; when it goes on, its connection is dead and it registers anew", async () => {
    await using stack = await startStack({ capacity: 5 });
    const { ends } = await running(stack, 5);
    stack.node.signal("SIGSTOP");
    const [ended, tookMs] = await timed(ends);
    expect(ended).toEqual(Array(5).fill("200 cut"));
    expect(tookMs).toBeGreaterThan(NOTICED_MS.least);
    expect(tookMs).toBeLessThan(NOTICED_MS.most);
    await gone(stack);
    expect(stack.edge.log()).toContain('"code":"heartbeat_timeout"');

    stack.node.signal("SIGCONT");
    await stack.connected();
    expect(stack.node.log().split('"msg":"disconnected"')).toHaveLength(2);
    // What it did for the dead connection has stopped.
    await stack.provider.when(({ active_requests }) => active_requests === 0, AbortSignal.timeout(5_000));
    await serves(stack);
    await stack.idle();
  });

  test.concurrent("stopped and replaced: the new process takes over after a probe, without waiting for the heartbeat; the old one yields", async () => {
    await using stack = await startStack({ capacity: 5 });
    const old = stack.node;
    const { ends } = await running(stack, 3);
    old.signal("SIGSTOP");
    const [, tookMs] = await timed(stack.startNode());
    // Its own start, and the probe of 1 s.
    expect(tookMs).toBeGreaterThan(900);
    expect(tookMs).toBeLessThan(4_000);
    expect(await ends).toEqual(Array(3).fill("200 cut"));
    expect(stack.edge.log()).toContain('"code":"superseded"');
    await serves(stack);

    old.signal("SIGCONT");
    await old.logged("superseded");
    await old.logged("will dial again");
    // Ten of its intervals, as it may not wait for 60 s.
    expect(old.log()).toMatch(/"delay_ms":2000,"reason":"superseded/);
    await old.logged("is connected already, from another process");
    await serves(stack);
    expect(stack.node.log()).not.toContain("disconnected");
    await stack.idle();
    expect((await old.stop()).code).toBe(0);
  });

  test.concurrent("cut off by the network, which says nothing: both sides notice, and it comes back with the network", async () => {
    await using stack = await startStack({ capacity: 5, proxied: true });
    const { ends } = await running(stack, 5);
    const work = stack.provider.when(
      ({ active_requests }) => active_requests === 0,
      AbortSignal.timeout(8_000),
    );
    stack.link?.freeze();
    const [[ended, clientsMs], [, workMs]] = await Promise.all([timed(ends), timed(work)]);
    expect(ended).toEqual(Array(5).fill("200 cut"));
    for (const tookMs of [clientsMs, workMs]) {
      expect(tookMs).toBeGreaterThan(NOTICED_MS.least);
      expect(tookMs).toBeLessThan(NOTICED_MS.most);
    }
    await gone(stack);
    await stack.node.logged('"msg":"disconnected"');
    expect(stack.node.log()).toContain("nothing received");
    expect(stack.edge.log()).toContain('"code":"heartbeat_timeout"');

    stack.link?.thaw();
    // An attempt that was made into the dark ends first: 10 s for an answer.
    await stack.connected(true, 14_000);
    await serves(stack);
    await stack.idle();
    expect(stack.edge.log().split("node connected")).toHaveLength(3);
  });

  test.concurrent("deaf: it gives up and dials anew, and replaces its old connection, which the Edge takes to be alive", async () => {
    await using stack = await startStack({ capacity: 5, proxied: true });
    const { ends } = await running(stack, 5);
    stack.link?.deafen();
    const [ended, tookMs] = await timed(ends);
    expect(ended).toEqual(Array(5).fill("200 cut"));
    expect(tookMs).toBeGreaterThan(NOTICED_MS.least);
    expect(tookMs).toBeLessThan(NOTICED_MS.most);
    await stack.connected();
    const log = stack.edge.log();
    expect(log).toContain('"code":"superseded","reason":"the same process has connected again"');
    expect(log).not.toContain("node refused");
    await serves(stack);
    // The end of the old connection, at last, changes nothing.
    stack.link?.thaw();
    await serves(stack);
    await stack.idle();
    expect(stack.edge.log().split("node disconnected")).toHaveLength(2);
    expect(stack.edge.log().split("node connected")).toHaveLength(3);
  });
});
