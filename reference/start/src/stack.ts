import { randomBytes } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { sha256Hex, whenAborted } from "@iop/reference-host";
import { type ChildHost, startChild } from "./child-process.ts";
import { type FoundProvider, findProvider } from "./find-provider.ts";
import { howToUse } from "./how-to-use.ts";

export interface StartOptions {
  /** Do not look for a real provider. */
  readonly builtIn: boolean;
  readonly signal: AbortSignal;
  readonly say: (line: string) => void;
}

const BUILT_IN_MODEL = "iop-demo";
/** Given to the Node's process alone, in its environment. */
const TOKEN_VARIABLE = "IOP_NODE_TOKEN";

/**
 * Starts a provider where none runs, an Edge and a Node, each on free loopback ports, and keeps them until
 * the signal fires.
 * @throws Error where one of them fails; by then all of them have ended.
 */
export async function startEverything({ builtIn, signal, say }: StartOptions): Promise<void> {
  try {
    await using stack = new AsyncDisposableStack();
    const folder = await mkdtemp(join(tmpdir(), "iop-start-"));
    stack.defer(() => rm(folder, { recursive: true, force: true }));
    const children: ChildHost[] = [];
    const start = async (...args: Parameters<typeof startChild>): Promise<ChildHost> => {
      const child = stack.use(await startChild(...args));
      children.push(child);
      return child;
    };

    const provider = (builtIn ? undefined : await found(say)) ?? (await builtInProvider(start, signal, say));
    const token = `iop_node_${randomBytes(32).toString("base64url")}`;

    say("Starting the Edge …");
    const edgeFile = join(folder, "edge.yaml");
    await writeFile(edgeFile, JSON.stringify(edgeConfig(provider, token), undefined, 2), { mode: 0o600 });
    const edge = await start("edge", ["--config", edgeFile], { signal });

    say("Starting the Node …");
    const nodeFile = join(folder, "node.yaml");
    await writeFile(nodeFile, JSON.stringify(nodeConfig(edge.ready["nodes"] ?? ""), undefined, 2), {
      mode: 0o600,
    });
    await start("node", ["--config", nodeFile], { signal, env: { [TOKEN_VARIABLE]: token } });

    say(
      howToUse({ http: edge.ready["http"] ?? "", admin: edge.ready["admin"] ?? "", models: provider.models }),
    );
    await Promise.race([whenAborted(signal), ...children.map((child) => child.failure)]);
  } catch (error) {
    // Asked to stop before everything ran.
    if (!signal.aborted || error !== signal.reason) throw error;
  }
  say("Stopped.");
}

async function found(say: (line: string) => void): Promise<FoundProvider | undefined> {
  say("Looking for a model server on this machine …");
  const provider = await findProvider();
  if (provider !== undefined) say(`Found one at ${provider.url}, where ${provider.name} usually is.`);
  return provider;
}

async function builtInProvider(
  start: typeof startChild,
  signal: AbortSignal,
  say: (line: string) => void,
): Promise<FoundProvider> {
  say(
    "Starting the built-in model server: it answers with random words, always the same to the same question …",
  );
  const { ready } = await start("provider", ["--model", BUILT_IN_MODEL], { signal });
  return { name: "built-in", url: ready["http"] ?? "", models: [BUILT_IN_MODEL] };
}

/** JSON is YAML, too. */
function edgeConfig(provider: FoundProvider, token: string): unknown {
  const candidate = { node: "this-machine", provider: "models" };
  return {
    edge: {
      name: "edge-1",
      listen: { nodes: { port: 0 }, http: { port: 0 }, admin: { port: 0 } },
      drain_timeout_sec: 2,
    },
    nodes: [
      {
        name: "this-machine",
        token: { sha256: sha256Hex(token) },
        providers: [{ id: "models", adapter: "openai-compat", endpoint: provider.url }],
      },
    ],
    models: Object.fromEntries(
      provider.models.map((model) => [model, { candidates: [{ ...candidate, target: model }] }]),
    ),
  };
}

function nodeConfig(address: string): unknown {
  const url = new URL(`tcp://${address}`);
  return {
    node: {
      name: "this-machine",
      edge: { host: url.hostname, port: Number(url.port), name: "edge-1" },
      token: { env: TOKEN_VARIABLE },
      reconnect: { max_attempts: 0, interval_sec: 1 },
      drain_timeout_sec: 2,
    },
  };
}
