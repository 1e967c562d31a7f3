import { execa } from "execa";
import { fileURLToPath } from "node:url";

import { API_KEY, type Contender, type Contenders } from "./contenders.ts";
import type { Load } from "./load.ts";
import type { Row } from "./row.ts";
import { median, spread } from "./statistics.ts";

const ROUNDS = 5;
const STREAMS = 32;
const PACED = { stream: true, iop_test: { tokens: 90, tokens_per_second: 30 } };
const BODY_BYTES = 20_000_000;

/** How much a 20 MB request body on the same connection moves the pauses between the chunks of small streams. */
export async function measureUpload({ iop, apart }: Contenders, load: Load): Promise<Row[]> {
  const alone: number[] = [];
  const beside: number[] = [];
  for (let round = 0; round <= ROUNDS; round++) {
    const quiet = await smallStreams(load, iop, async () => {});
    const busy = await smallStreams(load, iop, () => upload(apart));
    if (round === 0) continue;
    alone.push(quiet);
    beside.push(busy);
  }
  const moved = beside.map((value, index) => value - (alone[index] ?? Number.NaN));
  return [
    {
      what: `inter-chunk p99 of ${STREAMS} streams, ms: alone, beside a 20 MB body`,
      direct: "",
      proxy: `alone ${spread(alone, 1)}`,
      iop: `moved by ${spread(moved, 1)}`,
      ratio: median(beside) / median(alone),
      goal: "moves <= 20 ms",
      reached: median(moved) <= 20,
    },
  ];
}

/** The 99th percentile of the pauses between chunks, in milliseconds, with `meanwhile` going on. */
async function smallStreams(
  load: Load,
  contender: Contender,
  meanwhile: () => Promise<void>,
): Promise<number> {
  const gaps: number[] = [];
  const streams = Array.from({ length: STREAMS }, () => {
    let last: number | undefined;
    return load.chat(contender, PACED, {
      onData: () => {
        const now = performance.now();
        if (last !== undefined) gaps.push(now - last);
        last = now;
      },
    });
  });
  await meanwhile();
  await Promise.all(streams);
  gaps.sort((a, b) => a - b);
  return gaps[Math.floor(gaps.length * 0.99)] ?? Number.NaN;
}

/** By a process of its own, so that the one that measures has nothing else to do. */
async function upload(contender: Contender): Promise<void> {
  const program = fileURLToPath(new URL("../support/upload.ts", import.meta.url));
  const target = `${contender.url}/v1/chat/completions`;
  const { stdout } = await execa(process.execPath, [
    program,
    target,
    API_KEY,
    contender.model,
    String(BODY_BYTES),
  ]);
  if (stdout !== "200") throw new Error(`upload: ${stdout}`);
}
