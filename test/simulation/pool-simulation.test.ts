import { expect, test } from "vitest";

import { PoolSimulation } from "./pool-simulation.ts";

const SEEDS = 300;
const STEPS = 1_000;

test("whatever happens: no place lost or given twice, nobody forgotten or passed over", async () => {
  const total = new Map<string, number>();
  for (let seed = 1; seed <= SEEDS; seed++) {
    const tally = await new PoolSimulation(seed).run(STEPS).catch((error: unknown) => {
      throw new Error(`seed ${seed}; again: npm run simulate -- --seed ${seed} --steps ${STEPS}`, {
        cause: error,
      });
    });
    for (const [what, count] of Object.entries(tally)) total.set(what, (total.get(what) ?? 0) + count);
  }
  // Every way to end has been gone, and often enough there was a line.
  for (const what of [
    "completed",
    "cancelled",
    "node_disconnected",
    "unavailable",
    "unknown_model",
    "queue_full",
    "queue_timeout",
    "came back",
    "lost before it was sent",
  ])
    expect(total.get(what) ?? 0, what).toBeGreaterThan(50);
  expect(total.get("steps with waiters") ?? 0).toBeGreaterThan((SEEDS * STEPS) / 4);
}, 60_000);
