import type { LoadedConfig } from "./config-file.ts";
import { ConfigError, formatProblems } from "./config-problem.ts";
import type { Log } from "./log.ts";

/** Watches for SIGHUP, which then does not end the process. Dispose it to stop watching. */
export interface ReloadWatch<Config> extends Disposable {
  /** Who takes a changed configuration, and throws where it cannot be had. Of what came before only the last counts. */
  readonly onReload: (apply: (config: Config) => void) => void;
}

/**
 * At SIGHUP reads the configuration again and hands it on. One that is wrong, or is not taken, changes nothing,
 * and the log says why, with the places in the file.
 */
export function watchReload<Config>(options: {
  /** Named in the log. */
  readonly file: string;
  /** @throws ConfigError */
  readonly load: () => LoadedConfig<Config>;
  readonly log: Log;
  /** Once it fires there is nothing to reload any more. */
  readonly signal: AbortSignal;
}): ReloadWatch<Config> {
  const { file, load, log, signal } = options;
  let apply: ((config: Config) => void) | undefined;
  let early = false;
  const reload = (): void => {
    if (signal.aborted) return;
    if (apply === undefined) {
      early = true;
      return;
    }
    try {
      const { config, warnings } = load();
      for (const warning of warnings) log.warn(formatProblems(file, [warning]));
      apply(config);
    } catch (error) {
      const problems = error instanceof ConfigError ? error.problems : [];
      for (const problem of problems) log.error(formatProblems(file, [problem]));
      const why =
        problems.length > 0 ? `${file} has problems` : error instanceof Error ? error.message : String(error);
      log.error(`not reloaded, the configuration stays as it was: ${why}`);
    }
  };
  process.on("SIGHUP", reload);
  return {
    onReload: (taker) => {
      apply = taker;
      if (early) reload();
    },
    [Symbol.dispose]: () => void process.off("SIGHUP", reload),
  };
}

/** SIGHUP, for a program that reads its file only when it starts: says so, and goes on. */
export function ignoreHangup<Config>(log: Log): ReloadWatch<Config> {
  const ignore = (): void =>
    log.warn("SIGHUP ignored: this program reads its configuration only when it starts");
  process.on("SIGHUP", ignore);
  return { onReload: () => {}, [Symbol.dispose]: () => void process.off("SIGHUP", ignore) };
}
