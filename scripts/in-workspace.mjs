// `node scripts/in-workspace.mjs NAME [ARGUMENTS]`: sets up, then runs the root script `ws:NAME` with the
// workspace's own Node and tools on PATH. Its exit code is the script's.
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { constants } from "node:os";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";
import { SetupError, setup } from "./setup.mjs";

const root = fileURLToPath(new URL("..", import.meta.url));
const [name, ...args] = process.argv.slice(2);
const script = JSON.parse(readFileSync(join(root, "package.json"), "utf8")).scripts[`ws:${name}`];

/**
 * One Ctrl-C reaches this process more than once: from the terminal, and again from npm, which passes on
 * what it gets. Within this time it is the same one, in milliseconds.
 */
const SAME_SIGNAL_MS = 500;
/** How often to look whether whoever started this is still there, in milliseconds. */
const PARENT_CHECK_MS = 250;

if (script === undefined) {
  console.error(`There is no script ws:${name}.`);
  process.exit(2);
}
try {
  setup();
} catch (error) {
  if (!(error instanceof SetupError)) throw error;
  console.error(error.message);
  process.exit(1);
}

const isWindows = process.platform === "win32";
// `exec` where the script is one command: then what is signalled and waited for is the program itself.
const isSimple = !/[;&|]/.test(script);
const child = spawn(
  isWindows ? "cmd" : "sh",
  isWindows
    ? ["/d", "/s", "/c", script, ...args]
    : ["-c", `${isSimple ? "exec " : ""}${script} "$@"`, "sh", ...args],
  {
    cwd: root,
    stdio: "inherit",
    // A process group of its own: the terminal's signals come to it through here alone, each once.
    detached: !isWindows,
    env: { ...process.env, PATH: `${join(root, "node_modules/.bin")}${delimiter}${process.env.PATH}` },
  },
);

let lastSignal = -Infinity;
function pass(signal) {
  const now = performance.now();
  // Without a process id the shell itself did not start.
  if (child.pid === undefined || now - lastSignal < SAME_SIGNAL_MS) return;
  lastSignal = now;
  try {
    if (isWindows) child.kill(signal);
    else process.kill(-child.pid, signal);
  } catch {
    // It has just ended.
  }
}
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => pass(signal));

// npm passes a signal to the shell that it starts us through, which ends without a word to us.
const parent = process.ppid;
const watch = setInterval(() => {
  if (process.ppid === parent) return;
  clearInterval(watch);
  pass("SIGTERM");
}, PARENT_CHECK_MS);

child.on("error", (error) => {
  console.error(error.message);
  process.exitCode = 1;
});
child.on("exit", (code, signal) => {
  process.exit(code ?? 128 + constants.signals[signal]);
});
