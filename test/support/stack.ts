import { createProvider, type Provider } from "@iop/reference-provider";
import { createHash, randomBytes } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { z } from "zod";

import { startFaultProxy, type FaultProxy } from "./fault-proxy.ts";
import { freePort } from "./free-port.ts";
import { type HostProcess, type StartedHost, spawnHost } from "./host-process.ts";

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
  /** Changes the Edge's file before it is written. */
  readonly adapt?: (file: EdgeFile) => EdgeFile;
  /** What is started; the rest is the test's to start. Default: both. */
  readonly start?: "both" | "edge" | "nothing";
}

/** edge.yaml, as far as tests change it. */
export interface EdgeFile {
  readonly edge: Readonly<Record<string, unknown>>;
  readonly api_keys: ReadonlyArray<Readonly<Record<string, unknown>>>;
  readonly nodes: ReadonlyArray<{
    readonly name: string;
    readonly token: { readonly sha256: string };
    readonly providers: ReadonlyArray<Readonly<Record<string, unknown>>>;
  }>;
  readonly models: Readonly<Record<string, { readonly candidates: readonly CandidateEntry[] }>>;
}

export interface CandidateEntry {
  readonly node: string;
  readonly provider: string;
  readonly target: string;
}

/** For a Node process that is not like the others. */
export interface NodeProcessOptions {
  /** Default: the node's own. */
  readonly token?: string;
  /** Goes into its `node:` section. */
  readonly nodeOptions?: Readonly<Record<string, unknown>>;
}

/** The figures of the snapshot that tests look at. */
const snapshotSchema = z.object({
  nodes: z.array(
    z.object({
      name: z.string(),
      connected: z.boolean(),
      round_trip_ms: z.number().optional(),
      config_revision: z.number().optional(),
      providers: z.array(
        z.object({
          id: z.string(),
          status: z.string(),
          saturated: z.boolean().optional(),
          reason: z.string().optional(),
          capacity: z.object({ configured: z.number(), effective: z.number() }),
          in_flight: z.object({ normal: z.number(), long: z.number() }),
          quarantined: z.number(),
        }),
      ),
    }),
  ),
  models: z.array(z.object({ key: z.string(), waiting: z.number(), live: z.number() })),
  streams: z.number(),
});
export type Snapshot = z.infer<typeof snapshotSchema>;

/** An Edge and a Node as processes of their own, and a provider in this one. */
export interface Stack extends AsyncDisposable {
  readonly http: string;
  /** Of the Edge. */
  readonly admin: string;
  /** A caller's key. */
  readonly apiKey: string;
  /** The Edge's configuration, as JSON. */
  readonly edgeFile: string;
  /** Where Nodes dial. */
  readonly nodesPort: number;
  /** What proves to be the node. */
  readonly token: string;
  /** The one that was started last. */
  readonly edge: HostProcess;
  /** The one that was started last. */
  readonly node: HostProcess;
  /** Starts an Edge, on the same ports every time, and waits until it listens. */
  startEdge(): Promise<HostProcess>;
  /** Starts another process of the node and waits for nothing. */
  spawnNode(options?: NodeProcessOptions): Promise<StartedHost>;
  /** Starts another process of the node and waits until it is ready. */
  startNode(options?: NodeProcessOptions): Promise<HostProcess>;
  readonly provider: Provider;
  readonly providerUrl: string;
  readonly link: FaultProxy | undefined;
  snapshot(): Promise<Snapshot>;
  /** Resolves with the first snapshot that fits. @throws with the last one, after `timeoutMs`. */
  until(fits: (snapshot: Snapshot) => boolean, timeoutMs?: number): Promise<Snapshot>;
  /** Resolves once the node is connected, or is not. @throws after `timeoutMs`. */
  connected(is?: boolean, timeoutMs?: number): Promise<void>;
  /** Resolves once exactly that many requests wait. @throws after 5 s. */
  waiting(count: number): Promise<void>;
  /** Resolves once no counter, waiter, stream or provider request is left. @throws with the state, after `timeoutMs`. */
  idle(timeoutMs?: number): Promise<void>;
}

/** Between two looks at the snapshot, in milliseconds. */
const POLL_MS = 10;

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
    const ports = { nodes: await freePort(), http: await freePort(), admin: await freePort() };

    const edgeFile = join(folder, "edge.yaml");
    const file: EdgeFile = {
      edge: {
        name: "edge-1",
        listen: {
          nodes: { port: ports.nodes },
          http: { port: ports.http },
          admin: { port: ports.admin },
        },
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
        [[MODEL, "p1"] as const, ...more.map(([id]) => [id, id] as const)].map(([key, id]) => [
          key,
          { candidates: [{ node: "node-1", provider: id, target: "iop-demo" }] },
        ]),
      ),
    };
    await writeFile(edgeFile, JSON.stringify(options.adapt?.(file) ?? file));
    let edge: HostProcess | undefined;
    let node: HostProcess | undefined;
    let nodes = 0;

    const startEdge = async (): Promise<HostProcess> => {
      const started = stack.use(spawnHost("edge", ["--config", edgeFile], options.edgeEnv));
      edge = started;
      return started.becomesReady();
    };
    const start = options.start ?? "both";
    if (start !== "nothing") await startEdge();
    const http = edge?.ready["http"] ?? `http://127.0.0.1:${ports.http}`;
    const admin = edge?.ready["admin"] ?? `http://127.0.0.1:${ports.admin}`;
    const nodesPort = Number(edge?.ready["nodes"]?.split(":").at(-1) ?? ports.nodes);
    const link = options.proxied === true ? stack.use(await startFaultProxy(nodesPort)) : undefined;

    const spawnNode = async (own: NodeProcessOptions = {}): Promise<StartedHost> => {
      const nodeFile = join(folder, `node-${++nodes}.yaml`);
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
            ...own.nodeOptions,
          },
        }),
      );
      const env = { IOP_TEST_TOKEN: own.token ?? token };
      const started = stack.use(spawnHost("node", ["--config", nodeFile], env));
      node = started;
      return started;
    };
    const startNode = async (own?: NodeProcessOptions): Promise<HostProcess> =>
      (await spawnNode(own)).becomesReady();
    if (start === "both") await startNode();

    const snapshot = async (): Promise<Snapshot> => {
      const response = await fetch(`${admin}/api/snapshot`);
      return snapshotSchema.parse(await response.json());
    };
    const until = async (fits: (snapshot: Snapshot) => boolean, timeoutMs = 5_000): Promise<Snapshot> => {
      const deadline = performance.now() + timeoutMs;
      for (;;) {
        const now = await snapshot();
        if (fits(now)) return now;
        if (performance.now() > deadline) throw new Error(`it never fitted: ${JSON.stringify(now)}`);
        await setTimeout(POLL_MS);
      }
    };
    return {
      http,
      admin,
      apiKey,
      edgeFile,
      nodesPort,
      token,
      get edge() {
        return theStarted(edge);
      },
      get node() {
        return theStarted(node);
      },
      startEdge,
      spawnNode,
      startNode,
      provider,
      providerUrl,
      link,
      snapshot,
      until,
      connected: async (is = true, timeoutMs = 5_000) => {
        await until(({ nodes: [only] }) => only?.connected === is, timeoutMs);
      },
      waiting: async (count) => {
        await until((now) => waitingIn(now) === count);
      },
      idle: (timeoutMs = 5_000) => idle(until, provider, timeoutMs),
      [Symbol.asyncDispose]: () => stack.disposeAsync(),
    };
  } catch (error) {
    await stack.disposeAsync();
    throw error;
  }
}

async function idle(until: Stack["until"], provider: Provider, timeoutMs: number): Promise<void> {
  await provider
    .when((state) => state.active_requests === 0, AbortSignal.timeout(timeoutMs))
    .catch(() => {
      throw new Error(`the provider is still busy: ${JSON.stringify(provider.state())}`);
    });
  await until(isIdle, timeoutMs);
}

function isIdle(snapshot: Snapshot): boolean {
  const { streams, nodes } = snapshot;
  return (
    streams === 0 &&
    waitingIn(snapshot) === 0 &&
    nodes
      .flatMap((node) => node.providers)
      .every(({ in_flight: { normal, long }, quarantined }) => normal + long + quarantined === 0)
  );
}

function waitingIn({ models }: Snapshot): number {
  return models.reduce((sum, { waiting }) => sum + waiting, 0);
}

function theStarted(host: HostProcess | undefined): HostProcess {
  if (host === undefined) throw new Error("it has not been started");
  return host;
}

/** As the Edge keeps secrets. */
export function sha256(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}
