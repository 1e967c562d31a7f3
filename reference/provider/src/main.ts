import { ExitCode, parseCommandLine, printReadyLine, runProcess, whenAborted } from "@iop/reference-host";
import { Command, InvalidArgumentError } from "commander";
import { createProvider } from "./provider.ts";

interface Options {
  readonly host: string;
  readonly port: number;
  readonly model?: string[];
  readonly tokensPerSecond: number;
  readonly apiKeyEnv?: string;
}

const command = new Command("iop-provider")
  .description("A deterministic OpenAI-compatible model server, for trying IOP and for tests.")
  .option("--host <host>", "address to listen on", "127.0.0.1")
  .option("--port <port>", "port to listen on; 0 picks a free one", atLeastZero, 0)
  .option("--model <name...>", "names of the models that it serves (default: iop-demo)")
  .option("--tokens-per-second <rate>", "pace of streams; 0: as fast as possible", atLeastZero, 30)
  .option("--api-key-env <name>", "environment variable with the key that it demands");

process.exitCode = parseCommandLine(command);
if (process.exitCode === undefined) await main(command.opts<Options>());

async function main({ host, port, model, tokensPerSecond, apiKeyEnv }: Options): Promise<void> {
  const apiKey = apiKeyEnv === undefined ? undefined : process.env[apiKeyEnv];
  if (apiKeyEnv !== undefined && !apiKey) {
    process.stderr.write(`error: the environment variable ${apiKeyEnv} is not set\n`);
    process.exitCode = ExitCode.usage;
    return;
  }
  await runProcess("iop-provider", async ({ signal }) => {
    await using provider = createProvider({ models: model, tokensPerSecond, apiKey });
    printReadyLine({ http: await provider.listen({ host, port }) });
    await whenAborted(signal);
    return ExitCode.ok;
  });
}

function atLeastZero(text: string): number {
  const value = Number(text);
  if (text.trim() === "" || !Number.isFinite(value) || value < 0)
    throw new InvalidArgumentError("It must be a number, 0 or more.");
  return value;
}
