import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";

const main = fileURLToPath(new URL("main.ts", import.meta.url));
const example = fileURLToPath(new URL("../../../configs/node.yaml", import.meta.url));
let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "iop-node-process-"));
});
afterAll(() => rmSync(folder, { recursive: true }));

async function run(
  args: readonly string[],
  env: Record<string, string> = {},
): Promise<{ code: number | null; stdout: string; stderr: string }> {
  const child = spawn(process.execPath, ["--conditions=@iop/source", main, ...args], {
    stdio: ["ignore", "pipe", "pipe"],
    env: { PATH: process.env["PATH"], ...env },
  });
  let stdout = "";
  let stderr = "";
  child.stdout.on("data", (text) => (stdout += String(text)));
  child.stderr.on("data", (text) => (stderr += String(text)));
  await once(child, "close", { signal: AbortSignal.timeout(15_000) }).finally(() => child.kill("SIGKILL"));
  return { code: child.exitCode, stdout, stderr };
}

function file(text: string): string {
  const path = join(folder, "node.yaml");
  writeFileSync(path, text);
  return path;
}

function isRetry(message: unknown): boolean {
  return (
    typeof message === "object" && message !== null && "msg" in message && message.msg === "will dial again"
  );
}

describe("iop-node", () => {
  it("checks a file and says so", async () => {
    const { code, stdout } = await run(["--config", example, "--check"]);
    expect([code, stdout]).toEqual([0, `${example}: ok\n`]);
  });

  it("exits with 2 where its token is not set", async () => {
    const { code, stderr } = await run(["--config", example]);
    expect(code).toBe(2);
    expect(stderr).toContain("node.token.env: the environment variable GPU_1_TOKEN is not set");
  });

  it("exits with 4 after as many attempts as it may make", async () => {
    // A port that nobody listens on: 1 is reserved.
    const path = file(
      "node:\n  name: n\n  edge: { host: 127.0.0.1, port: 1 }\n  token: { env: T }\n" +
        "  reconnect: { max_attempts: 2, interval_sec: 0.01 }\n",
    );
    const { code, stdout, stderr } = await run(["--config", path], { T: "s3cr3t-token" });
    expect([code, stdout]).toEqual([4, ""]);
    const lines = stderr.trim().split("\n");
    const messages = lines.map((line): unknown => JSON.parse(line));
    expect(messages.filter((message) => isRetry(message))).toHaveLength(1);
    expect(stderr).not.toContain("s3cr3t");
  });
});
