import { createHash } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import { startProcess, startHost } from "../support/host-process.ts";

/** One way to the provider. */
export interface Contender {
  readonly name: "direct" | "two-hop proxy" | "IOP";
  readonly url: string;
  readonly model: string;
  /** Its own processes, the provider's not among them. */
  readonly pids: readonly number[];
}

export interface Contenders extends AsyncDisposable {
  readonly all: readonly Contender[];
  readonly proxy: Contender;
  readonly iop: Contender;
  readonly direct: Contender;
  /** IOP's way to a provider process of its own. */
  readonly apart: Contender;
}

export const API_KEY = "bench-key";
const CAPACITY = 20_000;

/** Starts the provider and everything that stands before it, each as a process of its own. */
export async function startContenders(): Promise<Contenders> {
  const stack = new AsyncDisposableStack();
  const provider = stack.use(await startHost("provider", ["--tokens-per-second", "0"]));
  const providerUrl = provider.ready["http"] ?? "";
  const otherProvider = stack.use(await startHost("provider", ["--tokens-per-second", "0"]));

  const program = fileURLToPath(new URL("relay.ts", import.meta.url));
  const inner = stack.use(await startProcess("relay", [program, "0", providerUrl]));
  const outer = stack.use(await startProcess("relay", [program, "0", inner.ready["http"] ?? ""]));

  const folder = await mkdtemp(join(tmpdir(), "iop-bench-"));
  stack.defer(() => rm(folder, { recursive: true, force: true }));

  const edgeFile = join(folder, "edge.yaml");
  await writeFile(
    edgeFile,
    JSON.stringify({
      edge: {
        name: "bench",
        listen: { nodes: { port: 0 }, http: { port: 0 }, admin: { port: 0 } },
        drain_timeout_sec: 1,
      },
      api_keys: [{ name: "bench", sha256: sha256(API_KEY) }],
      nodes: [
        {
          name: "bench-node",
          token: { sha256: sha256("bench-token") },
          providers: [
            { id: "p", adapter: "openai-compat", endpoint: providerUrl, capacity: CAPACITY },
            { id: "q", adapter: "openai-compat", endpoint: otherProvider.ready["http"], capacity: CAPACITY },
          ],
        },
      ],
      models: {
        demo: { candidates: [{ node: "bench-node", provider: "p", target: "iop-demo" }] },
        apart: { candidates: [{ node: "bench-node", provider: "q", target: "iop-demo" }] },
      },
    }),
  );
  const edge = stack.use(await startHost("edge", ["--config", edgeFile]));
  const nodeFile = join(folder, "node.yaml");
  await writeFile(
    nodeFile,
    JSON.stringify({
      node: {
        name: "bench-node",
        edge: { host: "127.0.0.1", port: Number(edge.ready["nodes"]?.split(":").at(-1)), name: "bench" },
        token: { env: "BENCH_TOKEN" },
        drain_timeout_sec: 1,
      },
    }),
  );
  const node = stack.use(await startHost("node", ["--config", nodeFile], { BENCH_TOKEN: "bench-token" }));

  const direct: Contender = { name: "direct", url: providerUrl, model: "iop-demo", pids: [] };
  const proxy: Contender = {
    name: "two-hop proxy",
    url: outer.ready["http"] ?? "",
    model: "iop-demo",
    pids: [outer.pid, inner.pid],
  };
  const iop: Contender = {
    name: "IOP",
    url: edge.ready["http"] ?? "",
    model: "demo",
    pids: [edge.pid, node.pid],
  };
  const apart: Contender = { ...iop, model: "apart" };
  const owned = stack.move();
  return {
    all: [direct, proxy, iop],
    direct,
    proxy,
    iop,
    apart,
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

function sha256(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}
