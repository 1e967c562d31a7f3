import type { Contender, Contenders } from "./contenders.ts";
import type { Load } from "./load.ts";
import type { Row } from "./row.ts";
import { median, spread } from "./statistics.ts";

const ROUNDS = 5;

/** Chunks a second through a contender, as fast as the provider makes them; and bytes a second with long chunks. */
export async function measureChunkRate({ direct, proxy, iop }: Contenders, load: Load): Promise<Row[]> {
  const rows: Row[] = [];
  for (const { what, streams, chunks, bytes, unit, judged } of [
    { what: "chunks/s of 200 B, 64 streams", streams: 64, chunks: 2_000, bytes: 200, unit: 1, judged: true },
    { what: "chunks/s of 200 B, 1 stream", streams: 1, chunks: 50_000, bytes: 200, unit: 1, judged: false },
    {
      what: "MB/s in chunks of 64 KiB, 8 streams",
      streams: 8,
      chunks: 400,
      bytes: 65_536,
      unit: 65_536 / 1e6,
      judged: false,
    },
  ]) {
    const rates = new Map<Contender, number[]>();
    const body = { stream: true, iop_test: { chunks, chunk_bytes: bytes } };
    for (let round = 0; round <= ROUNDS; round++) {
      for (const contender of [direct, proxy, iop]) {
        const started = performance.now();
        await load.run(contender, body, streams, streams);
        const seconds = (performance.now() - started) / 1000;
        if (round > 0)
          rates.set(contender, [...(rates.get(contender) ?? []), (streams * chunks * unit) / seconds]);
      }
    }
    const of = (contender: Contender): number[] => rates.get(contender) ?? [];
    const ratio = median(of(iop)) / median(of(proxy));
    rows.push({
      what,
      direct: spread(of(direct), 0),
      proxy: spread(of(proxy), 0),
      iop: spread(of(iop), 0),
      ratio,
      goal: judged ? ">= 0.7" : "",
      reached: judged ? ratio >= 0.7 : undefined,
    });
  }
  return rows;
}
