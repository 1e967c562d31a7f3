import type { Contenders } from "./contenders.ts";
import type { Load } from "./load.ts";
import type { Row } from "./row.ts";
import { median, spread } from "./statistics.ts";

const ROUNDS = 5;
const REQUESTS = 200;

/** Time to the first byte of a stream, and to the end of a short answer, request by request in turn. */
export async function measureFirstByte({ all, direct, proxy, iop }: Contenders, load: Load): Promise<Row[]> {
  const rows: Row[] = [];
  for (const concurrency of [1, 16, 64]) {
    for (const [kind, body] of [
      ["streaming", { stream: true, iop_test: { tokens: 8 } }],
      ["not streaming", { iop_test: { tokens: 8 } }],
    ] as const) {
      const first = new Map(all.map((contender) => [contender, [] as number[]]));
      for (let round = 0; round <= ROUNDS; round++) {
        for (const contender of all) {
          const done = await load.run(contender, body, REQUESTS, concurrency);
          // The first round warms up.
          if (round > 0) first.get(contender)?.push(median(done.map((exchange) => exchange.firstByteMs)));
        }
      }
      const of = (contender: (typeof all)[number]): number[] => first.get(contender) ?? [];
      const added = (contender: (typeof all)[number]): number[] =>
        of(contender).map((value, index) => value - (of(direct)[index] ?? Number.NaN));
      const ratio = median(added(iop)) / median(added(proxy));
      const judged = concurrency === 1 && kind === "streaming";
      rows.push({
        what: `added first byte, ${kind}, concurrency ${concurrency}, ms`,
        direct: `(${spread(of(direct), 2)})`,
        proxy: spread(added(proxy), 2),
        iop: spread(added(iop), 2),
        ratio,
        goal: judged ? "<= 2" : "",
        reached: judged ? ratio <= 2 : undefined,
      });
    }
  }
  return rows;
}
