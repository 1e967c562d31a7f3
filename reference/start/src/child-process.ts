import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { parseReadyLine } from "@iop/reference-host";

/** Longest that a host may take to serve, in milliseconds. */
const READY_MS = 20_000;
/** Longest that a host may take to drain and end before it is killed, in milliseconds. */
const STOP_MS = 10_000;
/** How much of its log is kept to be shown when it fails, in lines. */
const LOG_LINES = 40;

export type HostName = "edge" | "node" | "provider";

/** One of our hosts as a process of its own. */
export interface ChildHost extends AsyncDisposable {
  /** What its ready line says. */
  readonly ready: Readonly<Record<string, string>>;
  /** Rejects, with what it last logged, if it ends without having been asked to; never resolves. */
  readonly failure: Promise<never>;
  /** Asks it to drain and waits for its end; kills it where that takes too long. */
  stop(): Promise<void>;
}

/**
 * Starts a host on the Node that runs this process and waits until it is ready.
 *
 * It is the leader of a process group of its own: a Ctrl-C in the terminal reaches only us, and it is asked
 * to stop once, in its turn. Where this process dies, it notices by the closed channel and stops, too.
 * @throws Error with what it logged where it ends first; the signal's reason.
 */
export async function startChild(
  host: HostName,
  args: readonly string[],
  options: { readonly signal: AbortSignal; readonly env?: Readonly<Record<string, string>> },
): Promise<ChildHost> {
  options.signal.throwIfAborted();
  const child = spawn(process.execPath, [executableOf(host), ...args], {
    detached: true,
    stdio: ["ignore", "pipe", "pipe", "ipc"],
    env: { ...process.env, ...options.env },
  });
  const log: string[] = [];
  if (child.stderr !== null)
    createInterface({ input: child.stderr }).on("line", (line) => {
      log.push(line);
      if (log.length > LOG_LINES) log.shift();
    });
  const exit = once(child, "close");
  let isStopping = false;

  const stop = async (): Promise<void> => {
    isStopping = true;
    if (child.exitCode === null && child.signalCode === null) {
      child.kill("SIGTERM");
      const timer = setTimeout(() => child.kill("SIGKILL"), STOP_MS);
      await exit.catch(() => {});
      clearTimeout(timer);
    }
  };
  const failure = exit.then(() => {
    // Being stopped is no failure, and whoever waits for one has by then stopped waiting.
    if (isStopping) return new Promise<never>(() => {});
    const how = child.signalCode ?? `code ${child.exitCode ?? "?"}`;
    throw new Error(`The ${host} ended (${how}). Its last lines:\n${log.join("\n")}`);
  });
  failure.catch(() => {});

  try {
    const ready = await Promise.race([readyLineOf(child, options.signal), failure]);
    if (ready === undefined)
      throw new Error(
        `The ${host} was not ready within ${READY_MS / 1000} s. Its last lines:\n${log.join("\n")}`,
      );
    return { ready, failure, stop, [Symbol.asyncDispose]: stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** Undefined where it does not come in time. @throws the signal's reason. */
async function readyLineOf(
  child: ChildProcess,
  signal: AbortSignal,
): Promise<Record<string, string> | undefined> {
  const found = Promise.withResolvers<Record<string, string> | undefined>();
  const timer = setTimeout(() => found.resolve(undefined), READY_MS);
  const onAbort = (): void => found.reject(signal.reason);
  signal.addEventListener("abort", onAbort, { once: true });
  if (child.stdout !== null)
    createInterface({ input: child.stdout }).on("line", (line) => {
      const ready = parseReadyLine(line);
      if (ready !== undefined) found.resolve(ready);
    });
  try {
    return await found.promise;
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", onAbort);
  }
}

/** The program that the host's package names. */
function executableOf(host: HostName): string {
  const manifest = fileURLToPath(import.meta.resolve(`@iop/reference-${host}/package.json`));
  const parsed: unknown = JSON.parse(readFileSync(manifest, "utf8"));
  const bin = typeof parsed === "object" && parsed !== null && "bin" in parsed ? parsed.bin : undefined;
  const [file] = Object.values(typeof bin === "object" && bin !== null ? bin : {});
  return join(dirname(manifest), String(file));
}
