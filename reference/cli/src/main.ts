import { ExitCode, parseCommandLine } from "@iop/reference-host";
import { Command } from "commander";
import { type StatusOptions, runStatus } from "./status.ts";
import { createToken, describeToken } from "./token.ts";

const program = new Command("iop").description("Works with IOP: its configuration, and what runs.");
const token = program.command("token").description("Tokens and API keys.");
token
  .command("create")
  .description("Make a random secret, and the line for edge.yaml that knows it by its digest.")
  .argument("<name>", "the Node (or, with --api-key, the caller) that it is for")
  .option("--api-key", "make an entry of api_keys instead of a Node's token", false)
  .action((name: string, { apiKey }: { apiKey: boolean }) => {
    const kind = apiKey ? "key" : "node";
    if (!/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/.test(name)) {
      process.stderr.write(
        "error: NAME must be 1 to 64 letters, digits, dots, dashes or underscores, and start with a letter or digit\n",
      );
      process.exitCode = ExitCode.usage;
      return;
    }
    process.stdout.write(describeToken(kind, name, createToken(kind)));
  });
let running: Promise<ExitCode> | undefined;
program
  .command("status")
  .description("Nodes, providers, capacity in use, waiting and running requests of an Edge.")
  .option("--watch", "show it again whenever it changes, until Ctrl-C", false)
  .option("--json", "print the snapshot as JSON; with --watch one line for each change", false)
  .option("--admin <url>", "the Edge's admin address", "http://127.0.0.1:8081")
  .option("--key-env <name>", "environment variable that holds the admin key")
  .action((options: StatusOptions) => {
    running = runStatus(options);
  });
for (const command of [program, ...program.commands, ...token.commands]) command.exitOverride();

process.exitCode ??= parseCommandLine(program);
if (running !== undefined) process.exitCode = await running;
