import { ExitCode, watchShutdown } from "@iop/reference-host";
import { AdminClient, AdminError } from "./admin-client.ts";
import type { EdgeStatus } from "./edge-status.ts";
import { Screen, columnsOf } from "./screen.ts";
import { statusTable } from "./status-table.ts";
import { type StatusView, watchStatus } from "./watch-status.ts";

export interface StatusOptions {
  readonly admin: string;
  /** Variable that holds the admin key. */
  readonly keyEnv?: string | undefined;
  readonly json: boolean;
  readonly watch: boolean;
}

/** Where no terminal says how wide it is. */
const WIDTH = 80;

/** `iop status`: 0; 1 where the Edge cannot be asked; 2 for a wrong option; 3 where its key is refused. */
export async function runStatus(options: StatusOptions): Promise<ExitCode> {
  const url = URL.parse(options.admin);
  if (url === null || !/^https?:$/.test(url.protocol))
    return complain("--admin must be an http or https URL, such as http://127.0.0.1:8081", ExitCode.usage);
  const key = options.keyEnv === undefined ? undefined : process.env[options.keyEnv];
  if (options.keyEnv !== undefined && (key === undefined || key === ""))
    return complain(`the environment variable ${options.keyEnv} is not set`, ExitCode.usage);
  if (!url.pathname.endsWith("/")) url.pathname += "/";
  const client = new AdminClient({ url, key });
  try {
    if (options.watch) await watch(client, options.json);
    else
      print(
        options.json ? JSON.stringify(await client.status(), undefined, 2) : table(await client.status()),
      );
    return ExitCode.ok;
  } catch (error) {
    if (!(error instanceof AdminError)) throw error;
    return complain(error.message, error.exitCode);
  }
}

async function watch(client: AdminClient, json: boolean): Promise<void> {
  using shutdown = watchShutdown();
  // Whoever read it has had enough.
  const gone = new AbortController();
  process.stdout.on("error", () => gone.abort());
  const signal = AbortSignal.any([shutdown.signal, gone.signal]);
  if (json || !process.stdout.isTTY) {
    await watchStatus(client, printChanges(json), signal);
    return;
  }
  using screen = new Screen(process.stdout);
  await watchStatus(client, drawOn(screen), signal);
}

function drawOn(screen: Screen): StatusView {
  let last: EdgeStatus | undefined;
  const draw = (fault: string | undefined): void => {
    const lines = last === undefined ? [] : statusTable(last, { width: screen.width, now: Date.now() });
    screen.draw([
      ...(fault === undefined ? [] : [`${fault}; trying again`.slice(0, screen.width), ""]),
      ...lines,
    ]);
  };
  return {
    show: (status) => {
      last = status;
      draw(undefined);
    },
    lost: draw,
  };
}

/** For files and pipes: what has changed, and not that time has passed. */
function printChanges(json: boolean): StatusView {
  let last = "";
  return {
    show: (status) => {
      const state = JSON.stringify(status, (key, value: unknown) =>
        key === "uptime_sec" || key === "round_trip_ms" || key === "totals" ? undefined : value,
      );
      if (state === last) return;
      print(json ? JSON.stringify(status) : `${last === "" ? "" : "\n"}${table(status)}`);
      last = state;
    },
    lost: (message) => {
      if (last !== "") process.stderr.write(`${message}\n`);
      last = "";
    },
  };
}

function table(status: EdgeStatus): string {
  const width = process.stdout.isTTY ? columnsOf(process.stdout) : WIDTH;
  return statusTable(status, { width, now: Date.now() }).join("\n");
}

function print(text: string): void {
  process.stdout.write(`${text}\n`);
}

function complain(message: string, code: ExitCode): ExitCode {
  process.stderr.write(`error: ${message}\n`);
  return code;
}
