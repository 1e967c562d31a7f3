// Simulates the pool: `npm run simulate -- --seeds 1000 --steps 10000`, or `--seed N` to repeat one of them.
import { parseArgs } from "node:util";

import { PoolSimulation } from "./pool-simulation.ts";

const { values } = parseArgs({
  args: process.argv.slice(2).filter((argument) => argument !== "--"),
  options: {
    seeds: { type: "string", default: "1000" },
    steps: { type: "string", default: "10000" },
    seed: { type: "string" },
  },
});
const [seeds, steps] = [Number(values.seeds), Number(values.steps)];
const first = values.seed === undefined ? 1 : Number(values.seed);
if (![seeds, steps, first].every((count) => Number.isSafeInteger(count) && count >= 0)) {
  console.error("--seeds, --steps and --seed are numbers");
  process.exit(2);
}
const last = values.seed === undefined ? seeds : first;
const total: Record<string, number> = {};
const startedAt = performance.now();
for (let seed = first; seed <= last; seed++) {
  try {
    const tally = await new PoolSimulation(seed).run(steps);
    for (const [what, count] of Object.entries(tally)) total[what] = (total[what] ?? 0) + count;
  } catch (error) {
    console.error(`seed ${seed}: ${error instanceof Error ? error.message : String(error)}`);
    console.error(`Again: npm run simulate -- --seed ${seed} --steps ${steps}`);
    process.exit(1);
  }
  if (seed % 100 === 0) console.error(`${seed} of ${last}`);
}
console.table(total);
console.log(
  `${last - first + 1} × ${steps} steps in ${((performance.now() - startedAt) / 1000).toFixed(0)} s, nothing amiss`,
);
