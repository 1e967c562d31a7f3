import { Command } from "commander";
import { parseCommandLine } from "./command-line.ts";
import type { LoadedConfig } from "./config-file.ts";
import { ConfigError, formatProblems } from "./config-problem.ts";
import { ExitCode } from "./exit-code.ts";
import { type Log, createLog } from "./log.ts";
import { ignoreHangup, watchReload } from "./reload.ts";
import { watchShutdown } from "./shutdown.ts";

/** What a program that serves is given. */
export interface HostContext {
  readonly log: Log;
  /** Fires when the program is to drain and end. */
  readonly signal: AbortSignal;
}

/** What a program is given that can change its configuration while it serves. */
export interface ReloadableContext<Config> extends HostContext {
  /** At SIGHUP `apply` is given the file as it is then, once it is found right; it throws where it cannot be had. */
  readonly onReload: (apply: (config: Config) => void) => void;
}

/** A program that serves until it is told to stop. */
export interface HostProgram<Config> {
  /** Name of the command, such as `iop-edge`. */
  readonly name: string;
  readonly description: string;
  /**
   * Reads the configuration. `checkOnly`: the file is judged, not this process's environment.
   * @throws ConfigError
   */
  readonly load: (file: string, options: { readonly checkOnly: boolean }) => LoadedConfig<Config>;
  /** Serves until `signal` fires and what it then drains is done. Its result is the exit code. */
  readonly run: (config: Config, host: ReloadableContext<Config>) => Promise<ExitCode>;
  /** Whether `run` takes a changed configuration; without, SIGHUP is ignored, and the log says so. */
  readonly reloadable?: boolean;
}

/** How long after its end a program may take to let go of its last handles before that is reported, in milliseconds. */
const EXIT_GRACE_MS = 1_000;

/** Runs a program that has a configuration file: `--config FILE`, `--check`. Call it once, last. */
export async function runHost<Config>(program: HostProgram<Config>): Promise<void> {
  const command = new Command(program.name)
    .description(program.description)
    .requiredOption("--config <file>", "configuration file (YAML)")
    .option("--check", "check the file and exit: 0 if it is right, else 2", false);
  process.exitCode = parseCommandLine(command);
  if (process.exitCode !== undefined) return;
  const { config: file, check } = command.opts<{ config: string; check: boolean }>();
  let loaded: LoadedConfig<Config>;
  try {
    loaded = program.load(file, { checkOnly: check });
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    process.stderr.write(`${error.message}\n`);
    process.exitCode = ExitCode.usage;
    return;
  }
  if (check) {
    if (loaded.warnings.length > 0) process.stderr.write(`${formatProblems(file, loaded.warnings)}\n`);
    process.stdout.write(`${file}: ok\n`);
    return;
  }
  await runProcess(program.name, async (host) => {
    for (const warning of loaded.warnings) host.log.warn(formatProblems(file, [warning]));
    const load = (): LoadedConfig<Config> => program.load(file, { checkOnly: false });
    using hangup =
      program.reloadable === true ? watchReload({ file, load, ...host }) : ignoreHangup<Config>(host.log);
    return await program.run(loaded.config, { ...host, onReload: hangup.onReload });
  });
}

/** Runs `main` as the life of this process: signals, log, last resorts, exit code. Call it once, last. */
export async function runProcess(
  name: string,
  main: (host: HostContext) => Promise<ExitCode>,
  onShutdown?: (reason: string) => void,
): Promise<void> {
  const log = createLog(name);
  // A reader that goes away is no reason to stop serving.
  process.stdout.on("error", () => {});
  process.on("uncaughtException", (error, origin) => {
    log.fatal({ err: error }, origin);
    process.exit(ExitCode.failed);
  });
  using shutdown = watchShutdown(onShutdown ?? ((reason) => log.info({ reason }, "shutting down")));
  let code: ExitCode;
  try {
    code = await main({ log, signal: shutdown.signal });
  } catch (error) {
    if (shutdown.signal.aborted && error === shutdown.signal.reason) code = ExitCode.ok;
    else {
      log.fatal({ err: error }, error instanceof Error ? error.message : "failed");
      code = ExitCode.failed;
    }
  }
  process.exitCode = code;
  // Nothing may keep a process alive after its end; if something does, say what, and end.
  setTimeout(() => {
    log.warn({ resources: process.getActiveResourcesInfo() }, "open handles after the end");
    process.exit(code);
  }, EXIT_GRACE_MS).unref();
}
