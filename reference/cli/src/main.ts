import { ExitCode, parseCommandLine } from "@iop/reference-host";
import { Command } from "commander";
import { createToken, describeToken } from "./token.ts";

const program = new Command("iop").description("Works with IOP's configuration.");
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
for (const command of [program, token, ...token.commands]) command.exitOverride();

process.exitCode ??= parseCommandLine(program);
