import { execa } from "execa";
import { EventEmitter, once } from "node:events";
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
  /** What its ready line said; empty before it. */
  readonly ready: Readonly<Record<string, string>>;
  /** What it wrote to stderr, its last part. */
  log(): string;
  /** Resolves once its log contains `text` `times` times. @throws with the log where it exits first, or after `timeoutMs`. */
  logged(text: string, times?: number, timeoutMs?: number): Promise<void>;
  signal(name: NodeJS.Signals): void;
  /** Resolves when it has exited. */
  readonly exit: Promise<{ readonly code: number | undefined; readonly signal: string | undefined }>;
  /** Asks it to stop (SIGTERM) and waits; kills it where it does not. */
  stop(): Promise<{ readonly code: number | undefined }>;
}

/** One that need not be ready, or may never be. */
export interface StartedHost extends HostProcess {
  /** Resolves with its ready line. Rejects with its log where it exits first or takes too long. */
  becomesReady(): Promise<HostProcess>;
}

type Child = ReturnType<typeof spawn>;

/** Starts `reference/<host>` and waits for its ready line. Rejects with its log where it exits first. */
export function startHost(
  host: HostName,
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<HostProcess> {
  return startProcess(host, hostCommand(host, args), env);
}

/** Starts `reference/<host>` and waits for nothing. */
export function spawnHost(
  host: HostName,
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
): StartedHost {
  return spawnProcess(host, hostCommand(host, args), env);
}

function hostCommand(host: HostName, args: readonly string[]): string[] {
  return [`${ROOT}/reference/${host}/bin/iop-${host}.js`, ...args];
}

/** Starts any program that prints a ready line, on this Node. */
export async function startProcess(
  program: string,
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<HostProcess> {
  const started = spawnProcess(program, args, env);
  try {
    return await started.becomesReady();
  } catch (error) {
    started.signal("SIGKILL");
    await started.exit;
    throw error;
  }
}

function spawnProcess(
  program: string,
  args: readonly string[],
  env: Readonly<Record<string, string>>,
): StartedHost {
  const child = spawn(args, env);
  const grown = new EventEmitter();
  grown.setMaxListeners(0);
  let log = "";
  let ready: Readonly<Record<string, string>> = {};
  child.stderr.setEncoding("utf8");
  child.stderr.on("data", (text: string) => {
    log = (log + text).slice(-LOG_TAIL);
    grown.emit("log");
  });
  const exit = exitOf(child);
  const gone = new AbortController();
  void exit.then(() => gone.abort());
  const isReady = readyLine(child).then((line) => {
    if (line !== undefined) ready = line;
    return line;
  });
  const stop = async (): Promise<{ readonly code: number | undefined }> => {
    child.kill("SIGTERM");
    const timer = setTimeout(() => child.kill("SIGKILL"), STOP_MS);
    const { code } = await exit;
    clearTimeout(timer);
    return { code };
  };
  const host: StartedHost = {
    pid: child.pid ?? 0,
    get ready() {
      return ready;
    },
    log: () => log,
    logged: async (text, times = 1, timeoutMs = 10_000) => {
      const signal = AbortSignal.any([gone.signal, AbortSignal.timeout(timeoutMs)]);
      while (log.split(text).length <= times) {
        if (signal.aborted) throw new Error(`${program} did not log ${times} × ${text}:\n${log}`);
        await once(grown, "log", { signal }).catch(() => {});
      }
    },
    becomesReady: async () => {
      const line = await Promise.race([isReady, exit.then(() => undefined)]);
      if (line === undefined) throw new Error(`${program} did not become ready:\n${log}`);
      return host;
    },
    signal: (name) => void child.kill(name),
    exit,
    stop,
    [Symbol.asyncDispose]: async () => {
      await stop();
    },
  };
  return host;
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
