/** Where a value stands in a configuration: keys and list positions from the root. */
export type ConfigPath = ReadonlyArray<string | number>;

/** One thing that is wrong in a configuration file. Never holds a value of the file, so never a secret. */
export interface ConfigProblem {
  /** From 1. */
  readonly line: number;
  /** From 1. */
  readonly column: number;
  readonly path: ConfigPath;
  readonly message: string;
  /** A `warning` does not keep the host from running. */
  readonly severity: "error" | "warning";
}

/** Where checks that a schema cannot express report what they find. */
export interface ConfigReport {
  error(path: ConfigPath, message: string): void;
  warning(path: ConfigPath, message: string): void;
}

/** A configuration file that cannot be used. `code` is always `invalid_config`. */
export class ConfigError extends Error {
  override readonly name = "ConfigError";
  readonly code = "invalid_config";
  readonly file: string;
  readonly problems: readonly ConfigProblem[];

  constructor(file: string, problems: readonly ConfigProblem[]) {
    super(formatProblems(file, problems));
    this.file = file;
    this.problems = problems;
  }
}

/** `FILE:LINE:COLUMN: path.to.key: what is wrong`, one a line, in the order of the file. */
export function formatProblems(file: string, problems: readonly ConfigProblem[]): string {
  return problems
    .toSorted((a, b) => a.line - b.line || a.column - b.column)
    .map(({ line, column, path, message, severity }) => {
      const prefix = severity === "warning" ? "warning: " : "";
      return `${file}:${line}:${column}: ${formatPath(path)}: ${prefix}${message}`;
    })
    .join("\n");
}

/** `nodes[0].providers[1].id`; keys that are not plain words are quoted: `models["qwen3:8b"].candidates`. */
export function formatPath(path: ConfigPath): string {
  if (path.length === 0) return "(file)";
  return path
    .map((segment, index) => {
      if (typeof segment === "number") return `[${segment}]`;
      if (!/^[\w-]+$/.test(segment)) return `[${JSON.stringify(segment)}]`;
      return index === 0 ? segment : `.${segment}`;
    })
    .join("");
}
