import { execa } from "execa";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const READY_MS = 20_000;
const STOP_MS = 15_000;
/** What is kept of a host's log for a failing test, in characters. */
const LOG_TAIL = 20_000;

export type HostName = "edge" | "node" | "provider";

/** A reference host as a process of its own, as its users run it. */
export interface HostProcess extends AsyncDisposable {
  readonly pid: number;
  /** What its ready line said. */
  readonly ready: Readonly<Record<string, string>>;
  /** What it wrote to stderr, its last part. */
  log(): string;
  signal(name: NodeJS.Signals): void;
  /** Resolves when it has exited. */
  readonly exit: Promise<{ readonly code: number | undefined; readonly signal: string | undefined }>;
  /** Asks it to stop (SIGTERM) and waits; kills it where it does not. */
  stop(): Promise<{ readonly code: number | undefined }>;
}

type Child = ReturnType<typeof spawn>;

/** Starts `reference/<host>` and waits for its ready line. Rejects with its log where it exits first. */
export function startHost(
  host: HostName,
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<HostProcess> {
  return startProcess(host, [`${ROOT}/reference/${host}/bin/iop-${host}.js`, ...args], env);
}

/** Starts any program that prints a ready line, on this Node. */
export async function startProcess(
  program: string,
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<HostProcess> {
  const child = spawn(args, env);
  let log = "";
  child.stderr.setEncoding("utf8");
  child.stderr.on("data", (text: string) => {
    log = (log + text).slice(-LOG_TAIL);
  });
  const exit = exitOf(child);
  const ready = await Promise.race([readyLine(child), exit.then(() => undefined)]);
  if (ready === undefined) {
    child.kill("SIGKILL");
    await exit;
    throw new Error(`${program} did not become ready:\n${log}`);
  }
  const stop = async (): Promise<{ readonly code: number | undefined }> => {
    child.kill("SIGTERM");
    const timer = setTimeout(() => child.kill("SIGKILL"), STOP_MS);
    const { code } = await exit;
    clearTimeout(timer);
    return { code };
  };
  return {
    pid: child.pid ?? 0,
    ready,
    log: () => log,
    signal: (name) => void child.kill(name),
    exit,
    stop,
    [Symbol.asyncDispose]: async () => {
      await stop();
    },
  };
}

function spawn(args: readonly string[], env: Readonly<Record<string, string>>) {
  return execa(process.execPath, args, {
    env,
    stdin: "ignore",
    stdout: "pipe",
    stderr: "pipe",
    buffer: false,
    reject: false,
    cleanup: true,
  });
}

async function exitOf(child: Child): Promise<{ code: number | undefined; signal: string | undefined }> {
  const { exitCode, signal } = await child;
  return { code: exitCode, signal };
}

async function readyLine(child: Child): Promise<Record<string, string> | undefined> {
  const { promise, resolve } = Promise.withResolvers<Record<string, string> | undefined>();
  const timer = setTimeout(() => resolve(undefined), READY_MS);
  let text = "";
  child.stdout.setEncoding("utf8");
  child.stdout.on("data", (chunk: string) => {
    text += chunk;
    const line = text
      .split("\n")
      .find((one, index, all) => index < all.length - 1 && one.startsWith("ready {"));
    if (line === undefined) return;
    const parsed: unknown = JSON.parse(line.slice("ready ".length));
    resolve(
      Object.fromEntries(
        Object.entries(typeof parsed === "object" && parsed !== null ? parsed : {}).map(([key, value]) => [
          key,
          String(value),
        ]),
      ),
    );
  });
  try {
    return await promise;
  } finally {
    clearTimeout(timer);
  }
}
