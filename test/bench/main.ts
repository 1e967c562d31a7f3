// Speed of Edge + Node as ratios in one run: all contenders side by side, interleaved, medians with their spread.
// `npm run bench -- NAME ...` runs only the named measurements.
import { measureChunkRate } from "./chunk-rate.ts";
import { startContenders } from "./contenders.ts";
import { measureCpu } from "./cpu.ts";
import { measureFirstByte } from "./first-byte.ts";
import { measureIdleMemory } from "./idle-memory.ts";
import { Load } from "./load.ts";
import type { Row } from "./row.ts";
import { measureUpload } from "./upload.ts";

const measurements = {
  "first-byte": measureFirstByte,
  cpu: measureCpu,
  "chunk-rate": measureChunkRate,
  "idle-memory": measureIdleMemory,
  upload: measureUpload,
} as const;

const wanted = process.argv.slice(2).filter((argument) => argument !== "--");
const unknown = wanted.filter((name) => !Object.hasOwn(measurements, name));
if (unknown.length > 0) {
  console.error(
    `unknown measurement ${unknown.join(", ")}; there are ${Object.keys(measurements).join(", ")}`,
  );
  process.exit(2);
}

const rows: Row[] = [];
for (const [name, measure] of Object.entries(measurements)) {
  if (wanted.length > 0 && !wanted.includes(name)) continue;
  console.error(`measuring ${name} …`);
  // Fresh processes: what one measurement leaves behind must not weigh on the next.
  await using contenders = await startContenders();
  await using load = new Load();
  rows.push(...(await measure(contenders, load)));
}
console.table(
  rows.map((row) => ({
    measurement: row.what,
    direct: row.direct,
    "two-hop proxy": row.proxy,
    IOP: row.iop,
    "IOP / proxy": row.ratio.toFixed(2),
    goal: row.goal,
    reached: row.reached === undefined ? "" : row.reached ? "yes" : "NO",
  })),
);
