import { createEdge, type Edge } from "@iop/edge-core";
import { createNode } from "@iop/node-core";
import type { Listener, Transport } from "@iop/wire";
import { memoryTransport } from "@iop/wire/memory";
import { createHash } from "node:crypto";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { setTimeout } from "node:timers/promises";
import { expect, test } from "vitest";

const NODES = 500;
const INTERVAL_MS = 1_000;
/** Width of the windows in which attempts are counted, in milliseconds. */
const WINDOW_MS = 100;

const names = Array.from({ length: NODES }, (_, index) => `node-${index}`);

/** Resolves when every node is connected. */
function allConnected(edge: Edge): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  let connected = 0;
  edge.events.on("node", ({ type }) => {
    if (type === "connected") connected++;
    if (connected === NODES) resolve();
  });
  return promise;
}

test(`${NODES} Nodes that lose their Edge come back spread out, and do not stall it`, async () => {
  const network = memoryTransport();
  const dials: number[] = [];
  let listener: Listener | undefined;
  const transport: Transport = {
    dial: (options) => {
      dials.push(performance.now());
      return network.dial(options);
    },
    listen: async (options) => {
      listener = await network.listen(options);
      return listener;
    },
  };
  const startEdge = (): Edge =>
    createEdge({
      name: "edge-1",
      transport,
      nodes: names.map((name) => ({
        name,
        tokenSha256: createHash("sha256").update(`token of ${name}`).digest("hex"),
        providers: [],
      })),
      models: [],
    });
  await using first = startEdge();
  const served = allConnected(first);
  await first.listen();
  const shutdown = new AbortController();
  const lives = names.map((name) =>
    createNode({
      transport,
      name,
      token: `token of ${name}`,
      adapters: [],
      allow: { endpoints: [], env: [] },
      reconnect: { maxAttempts: 0, intervalMs: INTERVAL_MS },
    }).run({ signal: shutdown.signal }),
  );
  await served;

  // The Edge's machine is gone, for as long as some attempts take.
  dials.length = 0;
  await listener?.close();
  while (network.links.length > 0) network.links[0]?.cut();
  await setTimeout(2.5 * INTERVAL_MS);
  const failed = dials.length;
  await using second = startEdge();
  const back = allConnected(second);
  using delay = monitored();
  const started = performance.now();
  await second.listen();
  await back;
  const tookMs = performance.now() - started;

  const windows = new Map<number, number>();
  for (const at of dials) {
    const window = Math.floor(at / WINDOW_MS);
    windows.set(window, (windows.get(window) ?? 0) + 1);
  }
  const busiest = Math.max(...windows.values());
  console.info(
    `${NODES} Nodes: ${failed} attempts failed; back ${tookMs.toFixed(0)} ms after their Edge; at most ${busiest} ` +
      `attempts in ${WINDOW_MS} ms; the event loop was held up for ${delay.maxMs().toFixed(0)} ms at most`,
  );
  expect(failed).toBeGreaterThanOrEqual(2 * NODES);
  expect(failed).toBeLessThanOrEqual(3 * NODES);
  expect(tookMs).toBeLessThan(1.2 * INTERVAL_MS + 500);
  expect(busiest).toBeLessThan(NODES / 2);
  expect(delay.maxMs()).toBeLessThan(250);
  expect(second.snapshot().nodes.every(({ connected }) => connected)).toBe(true);
  expect(first.snapshot()).toMatchObject({ streams: 0 });
  expect(first.snapshot().nodes.some(({ connected }) => connected)).toBe(false);

  shutdown.abort();
  await Promise.all(lives);
});

function monitored(): Disposable & { maxMs(): number } {
  const histogram = monitorEventLoopDelay({ resolution: 5 });
  histogram.enable();
  return {
    maxMs: () => histogram.max / 1e6,
    [Symbol.dispose]: () => void histogram.disable(),
  };
}
