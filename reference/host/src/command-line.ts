import { type Command, CommanderError } from "commander";
import { ExitCode } from "./exit-code.ts";

/**
 * Parses this process's command line; `command.opts()` then has the options. Where there is nothing to
 * run, the result is the exit code: 0 after help, 2 after a mistake.
 */
export function parseCommandLine(command: Command): ExitCode | undefined {
  try {
    command.exitOverride().parse();
    return undefined;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? ExitCode.ok : ExitCode.usage;
    throw error;
  }
}
