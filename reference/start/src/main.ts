import { ExitCode, parseCommandLine, runProcess } from "@iop/reference-host";
import { Command } from "commander";
import { startEverything } from "./stack.ts";

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}

const command = new Command("iop-start")
  .description("Starts an Edge, a Node and a model server on this machine, and says how to use them.")
  .option("--built-in", "use the built-in model server even where a real one runs", false);

process.exitCode = parseCommandLine(command);
if (process.exitCode === undefined) {
  const { builtIn } = command.opts<{ builtIn: boolean }>();
  await runProcess(
    "iop-start",
    async ({ signal }) => {
      try {
        await startEverything({ builtIn, signal, say });
        return ExitCode.ok;
      } catch (error) {
        process.stderr.write(`\n${error instanceof Error ? error.message : String(error)}\n`);
        return ExitCode.failed;
      }
    },
    () => say("\nStopping …"),
  );
}
