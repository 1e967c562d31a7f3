// Installs and builds what `npm start` and `npm test` need, with only Node 20 or later and npm at hand.
// Does nothing, quickly, where nothing has changed since it last succeeded.
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const stampFile = join(root, ".setup-stamp");
const PNPM = "pnpm@12.21.0";

export function setup() {
  const packages = ["packages", "reference", "test"].flatMap((folder) => manifestsIn(folder));
  const install = digest(
    ["package.json", "pnpm-workspace.yaml", "pnpm-lock.yaml", ...packages],
    process.platform,
  );
  const build = digest([
    "tsconfig.base.json",
    "tsup.base.ts",
    ...packages.flatMap((manifest) => sourcesOf(manifest.slice(0, -"/package.json".length))),
  ]);
  const before = readStamp();
  const isInstalled = before.install === install && existsSync(join(root, "node_modules/.bin/node"));
  const isBuilt = isInstalled && before.build === build && packages.every(hasOutput);
  if (isBuilt) return;

  // A stamp of what is about to change would be a lie if this run were cut short.
  rmSync(stampFile, { force: true });
  if (!isInstalled) {
    say("Installing …");
    // Without the flag pnpm asks before it replaces the modules of another layout.
    pnpm(["install", "--frozen-lockfile", "--config.confirmModulesPurge=false", "--loglevel=error"]);
  }
  say("Building …");
  pnpm(["--loglevel=error", "run", "ws:build"]);
  writeFileSync(stampFile, `${JSON.stringify({ install, build })}\n`);
}

function pnpm(args) {
  const { status, signal, error } = spawnSync("npx", ["--yes", PNPM, ...args], {
    cwd: root,
    // Its output goes to stderr, all of it: stdout belongs to the program that is started.
    stdio: ["ignore", 2, 2],
    shell: process.platform === "win32",
  });
  if (status === 0) return;
  throw new SetupError(
    `npx ${PNPM} ${args.join(" ")} failed (${error?.message ?? signal ?? `code ${status}`})`,
  );
}

/** What the user sees instead of a stack. */
export class SetupError extends Error {}

function say(line) {
  process.stderr.write(`${line}\n`);
}

function readStamp() {
  try {
    return JSON.parse(readFileSync(stampFile, "utf8"));
  } catch {
    return {};
  }
}

function manifestsIn(folder) {
  const direct = `${folder}/package.json`;
  if (existsSync(join(root, direct))) return [direct];
  return readdirSync(join(root, folder))
    .sort()
    .map((name) => `${folder}/${name}/package.json`)
    .filter((manifest) => existsSync(join(root, manifest)));
}

function sourcesOf(folder) {
  if (!existsSync(join(root, folder, "src"))) return [];
  const sources = readdirSync(join(root, folder, "src"), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && !entry.name.endsWith(".test.ts"))
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name).slice(root.length));
  return [...sources.sort(), `${folder}/tsup.config.ts`, `${folder}/tsconfig.build.json`];
}

function hasOutput(manifest) {
  const folder = join(root, manifest.slice(0, -"package.json".length));
  return !existsSync(join(folder, "tsup.config.ts")) || existsSync(join(folder, "dist"));
}

function digest(files, ...more) {
  const hash = createHash("sha256").update(JSON.stringify(more));
  for (const file of files) hash.update(`${file}\n`).update(readFileSync(join(root, file)));
  return hash.digest("hex");
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  try {
    setup();
  } catch (error) {
    if (!(error instanceof SetupError)) throw error;
    say(error.message);
    process.exitCode = 1;
  }
}
