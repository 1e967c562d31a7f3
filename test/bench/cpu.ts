import type { Contender, Contenders } from "./contenders.ts";
import type { Load } from "./load.ts";
import { cpuSeconds } from "./process-stats.ts";
import type { Row } from "./row.ts";
import { median, spread } from "./statistics.ts";

const ROUNDS = 5;
const REQUESTS = 1_000;
const CONCURRENCY = 16;

/** CPU seconds of a contender's processes for a thousand requests, and how many it serves in a second. */
export async function measureCpu({ direct, proxy, iop }: Contenders, load: Load): Promise<Row[]> {
  const rows: Row[] = [];
  for (const [kind, body] of [
    ["streaming, 20 chunks", { stream: true, iop_test: { tokens: 20 } }],
    ["streaming, 200 chunks", { stream: true, iop_test: { tokens: 200 } }],
    ["not streaming", { iop_test: { tokens: 20 } }],
  ] as const) {
    const cpu = new Map<Contender, number[]>();
    const rate = new Map<Contender, number[]>();
    for (let round = 0; round <= ROUNDS; round++) {
      for (const contender of [direct, proxy, iop]) {
        const before = cpuSeconds(contender.pids);
        const started = performance.now();
        await load.run(contender, body, REQUESTS, CONCURRENCY);
        const seconds = (performance.now() - started) / 1000;
        const spent = cpuSeconds(contender.pids) - before;
        if (round === 0) continue;
        cpu.set(contender, [...(cpu.get(contender) ?? []), (spent * 1000) / REQUESTS]);
        rate.set(contender, [...(rate.get(contender) ?? []), REQUESTS / seconds]);
      }
    }
    const row = (what: string, values: Map<Contender, number[]>, digits: number): Row => {
      const of = (contender: Contender): number[] => values.get(contender) ?? [];
      return {
        what,
        direct: contenderText(of(direct), digits),
        proxy: spread(of(proxy), digits),
        iop: spread(of(iop), digits),
        ratio: median(of(iop)) / median(of(proxy)),
        goal: "",
        reached: undefined,
      };
    };
    const judged = row(`CPU s per 1,000 requests, ${kind}`, cpu, 2);
    rows.push({ ...judged, direct: "", goal: "<= 2", reached: judged.ratio <= 2 });
    rows.push(row(`requests/s, ${kind}, concurrency ${CONCURRENCY}`, rate, 0));
  }
  return rows;
}

function contenderText(values: readonly number[], digits: number): string {
  return values.length === 0 ? "" : spread(values, digits);
}
