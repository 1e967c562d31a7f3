import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { dirname } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { afterEach, describe, expect, it } from "vitest";

// Runs what is built of the Edge, the Node and the provider: `npm run setup` first.
const main = fileURLToPath(new URL("main.ts", import.meta.url));
let child: ChildProcess | undefined;
afterEach(() => child?.kill("SIGKILL"));

/** Starts it in a process group of its own, as a shell does, and waits until it says that it is ready. */
async function start(): Promise<{ lines: string[]; endpoint: string; stderr: () => string }> {
  child = spawn(process.execPath, ["--conditions=@iop/source", main, "--built-in"], {
    detached: true,
    stdio: ["ignore", "pipe", "pipe"],
  });
  let stderr = "";
  child.stderr?.on("data", (text) => (stderr += String(text)));
  const lines: string[] = [];
  const ready = Promise.withResolvers<string>();
  child.once("close", () => ready.reject(new Error(stderr)));
  if (child.stdout === null) throw new Error("no stdout");
  createInterface({ input: child.stdout }).on("line", (line) => {
    lines.push(line);
    const endpoint = /curl (http\S+)\/v1\/models/.exec(line)?.[1];
    if (endpoint !== undefined) ready.resolve(endpoint);
  });
  return { lines, endpoint: await ready.promise, stderr: () => stderr };
}

/** Process ids and command lines of the children of `start`. */
async function hosts(): Promise<Array<{ pid: number; args: string }>> {
  const ps = spawn("ps", ["-o", "pid=,args=", "--ppid", String(child?.pid)]);
  let text = "";
  ps.stdout.on("data", (chunk) => (text += String(chunk)));
  await once(ps, "close");
  return text
    .trim()
    .split("\n")
    .map((line) => ({ pid: Number.parseInt(line, 10), args: line }));
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

async function ended(): Promise<number | null> {
  if (child?.exitCode === null) await once(child, "close", { signal: AbortSignal.timeout(15_000) });
  return child?.exitCode ?? null;
}

describe.skipIf(process.platform === "win32")("iop-start", () => {
  it.each(["to it alone", "to its group, as Ctrl-C"])(
    "serves a request, and a signal %s stops all of it",
    async (whom) => {
      const { endpoint, lines } = await start();
      const processes = await hosts();
      expect(processes).toHaveLength(3);
      const file = /--config (\S+edge\.yaml)/.exec(processes.map(({ args }) => args).join("\n"))?.[1] ?? "";
      expect(existsSync(file)).toBe(true);

      const page = lines.find((line) => /^ {2}http:\S+\/$/.test(line))?.trim() ?? "";
      expect(await (await fetch(page)).text()).toContain("<title>IOP Edge</title>");

      const response = await fetch(`${endpoint}/v1/chat/completions`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({
          model: "iop-demo",
          stream: true,
          messages: [{ role: "user", content: "hi" }],
        }),
      });
      expect((await response.text()).endsWith("data: [DONE]\n\n")).toBe(true);

      const pid = child?.pid ?? 0;
      process.kill(whom === "to it alone" ? pid : -pid, whom === "to it alone" ? "SIGTERM" : "SIGINT");
      expect(await ended()).toBe(0);
      expect(lines.at(-1)).toBe("Stopped.");
      expect(processes.filter((host) => isAlive(host.pid))).toEqual([]);
      expect(existsSync(dirname(file))).toBe(false);
    },
    30_000,
  );

  it.each(["edge", "node", "provider"])(
    "stops all of it and says why where the %s dies",
    async (name) => {
      const { stderr } = await start();
      const processes = await hosts();
      const victim = processes.find(({ args }) => args.includes(`iop-${name}.js`));
      process.kill(victim?.pid ?? 0, "SIGKILL");
      expect(await ended()).toBe(1);
      expect(stderr()).toContain(`The ${name} ended (SIGKILL)`);
      expect(processes.filter((host) => isAlive(host.pid))).toEqual([]);
    },
    30_000,
  );
});
