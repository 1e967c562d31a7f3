import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { afterEach, expect, it } from "vitest";

const shutdown = new URL("shutdown.ts", import.meta.url).href;
/** Says `watching`, then `draining` at the first signal, and never finishes draining. */
const program = `
  import { watchShutdown } from ${JSON.stringify(shutdown)};
  const watch = watchShutdown((reason) => console.log("draining", reason));
  setInterval(() => {}, 1000);
  console.log("watching");
`;
let child: ChildProcess | undefined;
afterEach(() => child?.kill("SIGKILL"));

function start(stdio: "ignore" | "ipc"): AsyncIterator<string> {
  child = spawn(process.execPath, ["--input-type=module", "-e", program], {
    stdio: ["ignore", "pipe", "inherit", stdio],
  });
  if (child.stdout === null) throw new Error("no stdout");
  return createInterface({ input: child.stdout })[Symbol.asyncIterator]();
}

async function exitCode(): Promise<number | null> {
  const running = child;
  if (running?.exitCode === null) await once(running, "exit", { signal: AbortSignal.timeout(10_000) });
  return running?.exitCode ?? null;
}

it.each([
  ["SIGINT", 130],
  ["SIGTERM", 143],
] as const)("drains at the first %s and ends at once at the second", async (signal, code) => {
  const lines = start("ignore");
  expect((await lines.next()).value).toBe("watching");
  child?.kill(signal);
  expect((await lines.next()).value).toBe(`draining ${signal}`);
  expect(child?.exitCode).toBeNull();
  child?.kill(signal);
  expect(await exitCode()).toBe(code);
});

it("drains when the process that started it is gone", async () => {
  const lines = start("ipc");
  expect((await lines.next()).value).toBe("watching");
  child?.disconnect();
  expect((await lines.next()).value).toBe("draining parent process gone");
});
