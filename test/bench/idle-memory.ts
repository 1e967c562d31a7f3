import type { Contender, Contenders } from "./contenders.ts";
import type { Load } from "./load.ts";
import { openFilesLimit, residentBytes } from "./process-stats.ts";
import type { Row } from "./row.ts";

const STREAMS = 10_000;
/** Files that a process has open beside its streams. */
const SPARE_FILES = 100;

/** Memory of a contender's processes for each open stream that says nothing. */
export async function measureIdleMemory({ proxy, iop }: Contenders, load: Load): Promise<Row[]> {
  // A relay has two sockets for each stream.
  const forProxy = Math.min(STREAMS, Math.floor((openFilesLimit() - SPARE_FILES) / 2));
  const theirs = await perStream(proxy, load, forProxy);
  const ours = await perStream(iop, load, STREAMS);
  return [
    {
      what: `KiB for each of ${STREAMS} idle streams${forProxy === STREAMS ? "" : ` (proxy: ${forProxy}, its limit of open files)`}`,
      direct: "",
      proxy: (theirs / 1024).toFixed(1),
      iop: (ours / 1024).toFixed(1),
      ratio: ours / theirs,
      goal: "<= 1.5",
      reached: ours / theirs <= 1.5,
    },
  ];
}

async function perStream(contender: Contender, load: Load, streams: number): Promise<number> {
  await load.run(contender, { stream: true, iop_test: { tokens: 8 } }, 200, 8);
  const before = residentBytes(contender.pids);
  const stop = new AbortController();
  let open = 0;
  const all: Promise<unknown>[] = [];
  while (all.length < streams) {
    const batch = Math.min(250, streams - all.length);
    await Promise.all(
      Array.from({ length: batch }, () => {
        const { promise, resolve, reject } = Promise.withResolvers<void>();
        all.push(
          load
            .chat(
              contender,
              { stream: true, iop_test: { tokens: 8, fail: "hang", at: "first_token" } },
              {
                signal: stop.signal,
                onHead: () => {
                  open++;
                  resolve();
                },
              },
            )
            .catch((error: unknown) => {
              reject(error);
            }),
        );
        return promise;
      }),
    );
  }
  // Let what the burst left be collected, as it would be in a process that lives on.
  await settled(contender);
  const bytes = (residentBytes(contender.pids) - before) / open;
  stop.abort();
  await Promise.allSettled(all);
  return bytes;
}

/** Resolves when resident memory has stopped moving. */
async function settled(contender: Contender): Promise<void> {
  let last = residentBytes(contender.pids);
  for (let quiet = 0, turn = 0; quiet < 5 && turn < 60; turn++) {
    await new Promise<void>((resolve) => {
      setTimeout(resolve, 500);
    });
    const now = residentBytes(contender.pids);
    quiet = Math.abs(now - last) < 1e6 ? quiet + 1 : 0;
    last = now;
  }
}
