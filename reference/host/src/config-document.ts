import { readFileSync } from "node:fs";
import {
  type Alias,
  type Document,
  LineCounter,
  type Node,
  type Pair,
  isAlias,
  isMap,
  isNode,
  isPair,
  isScalar,
  isSeq,
  parseDocument,
  visit,
} from "yaml";
import { ConfigError, type ConfigPath, type ConfigProblem } from "./config-problem.ts";

/** Longest file that is read. A configuration of 1,000 nodes is a tenth of it. */
const MAX_FILE_BYTES = 4 * 1024 * 1024;

/** A YAML file as plain data that still knows where everything stands. */
export interface ConfigDocument {
  readonly file: string;
  readonly data: unknown;
  /** What is wrong with the YAML itself although it could be read, such as a repeated key. */
  readonly problems: readonly ConfigProblem[];
  /** `at: "key"` points to the key of the last segment, `"value"` to what follows it; where the path does not exist, to its nearest ancestor. */
  problem(path: ConfigPath, message: string, at: "key" | "value"): ConfigProblem;
}

/**
 * Reads a YAML file.
 * @throws ConfigError where it cannot be read or is not YAML, with all syntax errors at once.
 */
export function readConfigDocument(file: string): ConfigDocument {
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch (error) {
    const reason = error instanceof Error && "code" in error ? String(error.code) : "unknown error";
    throw new ConfigError(file, [problemAt({ line: 1, col: 1 }, [], `cannot be read (${reason})`)]);
  }
  if (text.length > MAX_FILE_BYTES)
    throw new ConfigError(file, [
      problemAt({ line: 1, col: 1 }, [], `is longer than ${MAX_FILE_BYTES} bytes`),
    ]);
  return parseConfigDocument(file, text);
}

/** `readConfigDocument` for text at hand; `file` is only a name. */
export function parseConfigDocument(file: string, text: string): ConfigDocument {
  const lines = new LineCounter();
  // Pretty errors would quote the file's text, which may hold what should not be printed.
  const document = parseDocument(text, { lineCounter: lines, prettyErrors: false });
  const at = (offset: number, path: ConfigPath, message: string): ConfigProblem =>
    problemAt(lines.linePos(offset), path, message);

  const problems: ConfigProblem[] = [];
  let broken = false;
  for (const error of [...document.errors, ...document.warnings]) {
    const offset = error.pos[0];
    if (error.code === "DUPLICATE_KEY") {
      problems.push(at(offset, pathOfKey(document, offset), "is given more than once"));
    } else {
      broken = true;
      problems.push(at(offset, pathOfKey(document, offset), `is not valid YAML: ${error.message}`));
    }
  }
  visit(document, {
    Alias(_key, alias) {
      if (alias.resolve(document) !== undefined) return;
      broken = true;
      problems.push(at(alias.range?.[0] ?? 0, [], "refers to an anchor that is not set before it"));
    },
    Pair(_key, pair) {
      // A key that is itself a list or a map has no path, and `__proto__` is none that plain data should have.
      if (isScalar(pair.key) && String(pair.key.value) !== "__proto__") return;
      broken = true;
      problems.push(at(offsetOfKey(pair) ?? 0, [], "is not usable as a key"));
    },
  });
  if (broken) throw new ConfigError(file, problems);

  let data: unknown;
  try {
    // Bounds what aliases may expand to; the library's own default, written out.
    data = document.toJS({ maxAliasCount: 100 });
  } catch {
    throw new ConfigError(file, [problemAt({ line: 1, col: 1 }, [], "repeats too much through aliases")]);
  }
  return {
    file,
    data,
    problems,
    problem: (path, message, where) => at(locate(document, path, where), path, message),
  };
}

function problemAt(
  position: { readonly line: number; readonly col: number },
  path: ConfigPath,
  message: string,
): ConfigProblem {
  return {
    // The counter answers 0 for an empty text.
    line: Math.max(1, position.line),
    column: Math.max(1, position.col),
    path,
    message,
    severity: "error",
  };
}

function locate(document: Document, path: ConfigPath, where: "key" | "value"): number {
  let node: Node | undefined = document.contents ?? undefined;
  let offset = node?.range?.[0] ?? 0;
  for (const [index, segment] of path.entries()) {
    node = resolveAlias(document, node);
    let next: unknown;
    if (isMap(node)) {
      const pair = node.items.find(
        (item) => isScalar(item.key) && String(item.key.value) === String(segment),
      );
      if (pair === undefined) break;
      offset = offsetOfKey(pair) ?? offset;
      next = pair.value;
    } else if (isSeq(node) && typeof segment === "number") {
      next = node.items[segment];
    } else break;
    if (!isNode(next)) break;
    const isLast = index === path.length - 1;
    if (next.range && (isSeq(node) || (isLast && where === "value" && isScalar(next))))
      offset = next.range[0];
    node = next;
  }
  return offset;
}

function resolveAlias(document: Document, node: Node | undefined): Node | undefined {
  const resolved: Node | Alias | undefined = isAlias(node) ? node.resolve(document) : node;
  return resolved;
}

function offsetOfKey(pair: Pair): number | undefined {
  return isNode(pair.key) ? pair.key.range?.[0] : undefined;
}

/** The path of the key that starts at, or else most nearly before, an offset. */
function pathOfKey(document: Document, offset: number): ConfigPath {
  let found: ConfigPath = [];
  visit(document, {
    Pair(_key, pair, ancestors) {
      const start = offsetOfKey(pair);
      if (start !== undefined && start <= offset) found = pathOf([...ancestors, pair]);
    },
  });
  return found;
}

function pathOf(chain: readonly unknown[]): ConfigPath {
  const path: Array<string | number> = [];
  for (const [index, item] of chain.entries()) {
    if (isPair(item) && isScalar(item.key)) path.push(String(item.key.value));
    else if (isSeq(item) && index + 1 < chain.length) path.push(item.items.indexOf(chain[index + 1]));
  }
  return path;
}
