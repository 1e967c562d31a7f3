// Speed of Edge + Node as ratios in one run: all contenders side by side, interleaved, medians with their spread.
// `npm run bench -- NAME ...` runs only the named measurements.
import { measureChunkRate } from "./chunk-rate.ts";
import type { Contenders } from "./contenders.ts";
import { startContenders } from "./contenders.ts";
import { measureCpu } from "./cpu.ts";
import { measureDispatch } from "./dispatch.ts";
import { measureFirstByte } from "./first-byte.ts";
import { measureIdleMemory } from "./idle-memory.ts";
import { Load } from "./load.ts";
import type { Row } from "./row.ts";
import { measureUpload } from "./upload.ts";

const measurements = {
  "first-byte": () => withContenders(measureFirstByte),
  cpu: () => withContenders(measureCpu),
  "chunk-rate": () => withContenders(measureChunkRate),
  "idle-memory": () => withContenders(measureIdleMemory),
  upload: () => withContenders(measureUpload),
  dispatch: measureDispatch,
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
  rows.push(...(await measure()));
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

/** In fresh processes: what one measurement leaves behind must not weigh on the next. */
async function withContenders(
  measure: (contenders: Contenders, load: Load) => Promise<Row[]>,
): Promise<Row[]> {
  await using contenders = await startContenders();
  await using load = new Load();
  return await measure(contenders, load);
}
