// Fails, with FILE:LINE, on what a package may not import or depend on, and on files that have grown too long.
// `node scripts/check-packages.mjs [ROOT]`
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { isBuiltin } from "node:module";
import { dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { MAX_FILE_LINES, MAX_INDEX_LINES, rules } from "./package-rules.mjs";

/** @returns {string[]} one line for each problem. */
export function checkPackages(root) {
  const problems = [];
  for (const kind of ["packages", "reference"]) {
    for (const name of readdirSync(join(root, kind)).sort()) {
      const folder = `${kind}/${name}`;
      if (!existsSync(join(root, folder, "package.json"))) continue;
      const rule = rules[folder];
      if (rule === undefined)
        problems.push(`${folder}/package.json:1: the package has no row in scripts/package-rules.mjs`);
      else problems.push(...checkManifest(root, folder, rule), ...checkSources(root, folder, rule));
    }
  }
  return problems;
}

function checkManifest(root, folder, rule) {
  const file = `${folder}/package.json`;
  const text = readFileSync(join(root, file), "utf8");
  const manifest = JSON.parse(text);
  const names = ["dependencies", "peerDependencies", "optionalDependencies"].flatMap((kind) =>
    Object.keys(manifest[kind] ?? {}),
  );
  return names
    .filter((name) => !rule.imports.includes(name))
    .map((name) => `${file}:${lineOf(text, text.indexOf(`"${name}":`))}: may not depend on ${name}`);
}

function checkSources(root, folder, rule) {
  const source = join(root, folder, "src");
  const manifest = JSON.parse(readFileSync(join(root, folder, "package.json"), "utf8"));
  const problems = [];
  for (const path of filesIn(source)) {
    const file = relative(root, path);
    const inSource = relative(source, path);
    if (/^gen\/|\.test\.ts$|(^|\/)testing\//.test(inSource)) continue;
    const text = readFileSync(path, "utf8");
    const lines = text.split("\n").length - 1;
    const limit = inSource === "index.ts" ? MAX_INDEX_LINES : MAX_FILE_LINES;
    if (lines > limit) problems.push(`${file}:${limit + 1}: has ${lines} lines; at most ${limit}`);
    for (const { specifier, offset } of importsOf(text)) {
      const reason = refusal(specifier, { path, inSource, source, rule, own: manifest.name });
      if (reason !== undefined) problems.push(`${file}:${lineOf(text, offset)}: ${reason}`);
    }
  }
  return problems;
}

function refusal(specifier, { path, inSource, source, rule, own }) {
  if (specifier.startsWith(".")) {
    const target = resolve(dirname(path), specifier);
    return relative(source, target).startsWith("..") ? `${specifier} leaves the package's src` : undefined;
  }
  if (isBuiltin(specifier)) {
    if (!specifier.startsWith("node:")) return `write node:${specifier}`;
    const isAllowed = rule.builtins === true || rule.builtins.includes(inSource);
    return isAllowed ? undefined : `may not import ${specifier}: it is to run without Node`;
  }
  const name = specifier.split("/", specifier.startsWith("@") ? 2 : 1).join("/");
  if (name === own) return `imports itself as ${specifier}; use a relative path`;
  return rule.imports.includes(name) ? undefined : `may not import ${specifier}`;
}

/** Static and dynamic imports, re-exports, and what is resolved by name. */
function importsOf(text) {
  const code = withoutComments(text);
  const patterns = [
    /\b(?:import|export)\b[^;'"`()=]*?\bfrom\s*["']([^"']+)["']/g,
    /\bimport\s*["']([^"']+)["']/g,
    /\bimport\s*\(\s*["'`]([^"'`$]+)["'`]/g,
    /\brequire\s*\(\s*["']([^"']+)["']/g,
    /\bimport\.meta\.resolve\(\s*["'`]([^"'`$]+)["'`]/g,
  ];
  return patterns.flatMap((pattern) =>
    [...code.matchAll(pattern)].map((match) => ({
      specifier: match[1],
      offset: match.index + match[0].lastIndexOf(match[1]),
    })),
  );
}

/** Blanks comments and keeps every offset. Strings are kept whole, so that `//` in a URL is none. */
function withoutComments(text) {
  const token = /("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`)|\/\/[^\n]*|\/\*[^]*?\*\//g;
  return text.replace(token, (match, string) => string ?? match.replace(/[^\n]/g, " "));
}

function lineOf(text, offset) {
  return text.slice(0, Math.max(0, offset)).split("\n").length;
}

function filesIn(folder) {
  if (!existsSync(folder)) return [];
  return readdirSync(folder, { recursive: true })
    .map((name) => join(folder, String(name)))
    .filter((path) => path.endsWith(".ts"))
    .sort();
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const root = resolve(process.argv[2] ?? fileURLToPath(new URL("..", import.meta.url)));
  const problems = checkPackages(root);
  for (const problem of problems) console.error(problem);
  process.exitCode = problems.length > 0 ? 1 : 0;
}
