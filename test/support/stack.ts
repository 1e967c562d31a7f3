import { createProvider, type Provider } from "@iop/reference-provider";
import { createHash, randomBytes } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { z } from "zod";

import { startFaultProxy, type FaultProxy } from "./fault-proxy.ts";
import { type HostProcess, startHost } from "./host-process.ts";

export interface StackOptions {
  /** Concurrent requests of the provider. Default 64. */
  readonly capacity?: number;
  /** Puts a fault proxy between Node and Edge. */
  readonly proxied?: boolean;
  /** Goes into the Edge's `edge:` section. */
  readonly edge?: Readonly<Record<string, unknown>>;
  /** The Edge's environment, on top of this process's. */
  readonly edgeEnv?: Readonly<Record<string, string>>;
  /** Goes into the `edge:` section of the Node. */
  readonly nodeEdge?: Readonly<Record<string, unknown>>;
  /** More models, by key: the endpoint of a provider of their own. */
  readonly models?: Readonly<Record<string, string>>;
  /** Goes into the Node's `node:` section. */
  readonly nodeOptions?: Readonly<Record<string, unknown>>;
  /** Goes into the provider's entry. */
  readonly provider?: Readonly<Record<string, unknown>>;
}

/** The figures of the snapshot that tests look at. */
const snapshotSchema = z.object({
  nodes: z.array(
    z.object({
      name: z.string(),
      connected: z.boolean(),
      round_trip_ms: z.number().optional(),
      providers: z.array(
        z.object({
          status: z.string(),
          in_flight: z.object({ normal: z.number(), long: z.number() }),
          quarantined: z.number(),
        }),
      ),
    }),
  ),
  streams: z.number(),
});
export type Snapshot = z.infer<typeof snapshotSchema>;

/** An Edge and a Node as processes of their own, and a provider in this one. */
export interface Stack extends AsyncDisposable {
  readonly http: string;
  /** A caller's key. */
  readonly apiKey: string;
  /** Where Nodes dial. */
  readonly nodesPort: number;
  readonly edge: HostProcess;
  readonly node: HostProcess;
  readonly provider: Provider;
  readonly providerUrl: string;
  readonly link: FaultProxy | undefined;
  snapshot(): Promise<Snapshot>;
  /** Resolves once no counter, stream or provider request is left. @throws with the state, after `timeoutMs`. */
  idle(timeoutMs?: number): Promise<void>;
}

/** Key in the catalog; the provider knows the model as `iop-demo`. */
export const MODEL = "demo";

export async function startStack(options: StackOptions = {}): Promise<Stack> {
  const stack = new AsyncDisposableStack();
  try {
    const folder = await mkdtemp(join(tmpdir(), "iop-test-"));
    stack.defer(() => rm(folder, { recursive: true, force: true }));
    const provider = stack.use(createProvider());
    const providerUrl = await provider.listen();
    const more = Object.entries(options.models ?? {});
    const token = randomBytes(24).toString("base64url");
    const apiKey = randomBytes(24).toString("base64url");

    const edgeFile = join(folder, "edge.yaml");
    await writeFile(
      edgeFile,
      JSON.stringify({
        edge: {
          name: "edge-1",
          listen: { nodes: { port: 0 }, http: { port: 0 }, admin: { port: 0 } },
          drain_timeout_sec: 2,
          ...options.edge,
        },
        api_keys: [{ name: "tester", sha256: sha256(apiKey) }],
        nodes: [
          {
            name: "node-1",
            token: { sha256: sha256(token) },
            providers: [
              ...more.map(([id, endpoint]) => ({ id, adapter: "openai-compat", endpoint })),
              {
                id: "p1",
                adapter: "openai-compat",
                endpoint: providerUrl,
                capacity: options.capacity ?? 64,
                ...options.provider,
              },
            ],
          },
        ],
        models: Object.fromEntries(
          [[MODEL, "p1"], ...more.map(([id]) => [id, id])].map(([key, id]) => [
            key,
            { candidates: [{ node: "node-1", provider: id, target: "iop-demo" }] },
          ]),
        ),
      }),
    );
    const edge = stack.use(await startHost("edge", ["--config", edgeFile], options.edgeEnv));
    const http = url(edge.ready, "http");
    const admin = url(edge.ready, "admin");
    const nodesPort = Number(edge.ready["nodes"]?.split(":").at(-1));
    const link = options.proxied === true ? stack.use(await startFaultProxy(nodesPort)) : undefined;

    const nodeFile = join(folder, "node.yaml");
    await writeFile(
      nodeFile,
      JSON.stringify({
        node: {
          name: "node-1",
          edge: {
            host: "127.0.0.1",
            port: link?.port ?? nodesPort,
            name: "edge-1",
            ...options.nodeEdge,
          },
          token: { env: "IOP_TEST_TOKEN" },
          reconnect: { max_attempts: 0, interval_sec: 0.2 },
          drain_timeout_sec: 2,
          ...options.nodeOptions,
        },
      }),
    );
    const node = stack.use(await startHost("node", ["--config", nodeFile], { IOP_TEST_TOKEN: token }));

    const snapshot = async (): Promise<Snapshot> => {
      const response = await fetch(`${admin}/api/snapshot`);
      return snapshotSchema.parse(await response.json());
    };
    const owned = stack.move();
    return {
      http,
      apiKey,
      nodesPort,
      edge,
      node,
      provider,
      providerUrl,
      link,
      snapshot,
      idle: (timeoutMs = 5_000) => idle(snapshot, provider, timeoutMs),
      [Symbol.asyncDispose]: () => owned.disposeAsync(),
    };
  } catch (error) {
    await stack.disposeAsync();
    throw error;
  }
}

async function idle(snapshot: () => Promise<Snapshot>, provider: Provider, timeoutMs: number): Promise<void> {
  await provider
    .when((state) => state.active_requests === 0, AbortSignal.timeout(timeoutMs))
    .catch(() => {
      throw new Error(`the provider is still busy: ${JSON.stringify(provider.state())}`);
    });
  const deadline = performance.now() + timeoutMs;
  for (;;) {
    const now = await snapshot();
    const busy = now.nodes
      .flatMap((node) => node.providers)
      .map(({ in_flight: { normal, long }, quarantined }) => normal + long + quarantined);
    if (now.streams === 0 && busy.every((count) => count === 0)) return;
    if (performance.now() > deadline) throw new Error(`not idle: ${JSON.stringify(now)}`);
  }
}

function url(ready: Readonly<Record<string, string>>, key: string): string {
  const value = ready[key];
  if (value === undefined) throw new Error(`the ready line has no ${key}`);
  return value;
}

function sha256(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}
