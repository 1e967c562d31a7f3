import { z } from "zod";
import { type ConfigDocument, readConfigDocument } from "./config-document.ts";
import { ConfigError, type ConfigPath, type ConfigProblem, type ConfigReport } from "./config-problem.ts";
import { nearest } from "./spelling.ts";

/** How to read one kind of configuration file. */
export interface ConfigFormat<Schema extends z.ZodType> {
  readonly schema: Schema;
  /**
   * What the schema cannot say: references between parts, rules that span keys. It runs on the raw data
   * even where the schema found something wrong, so that all problems come at once.
   */
  readonly check?: (data: unknown, report: ConfigReport) => void;
  /** Paths, `*` standing for any segment, of keys that documentation of other versions shows. */
  readonly unsupported?: readonly string[];
}

export interface LoadedConfig<T> {
  readonly config: T;
  readonly warnings: readonly ConfigProblem[];
}

/**
 * Reads and checks a YAML (or JSON) configuration file.
 * @throws ConfigError with every problem of the file.
 */
export function loadConfigFile<Schema extends z.ZodType>(
  file: string,
  format: ConfigFormat<Schema>,
): LoadedConfig<z.output<Schema>> {
  return checkConfig(readConfigDocument(file), format);
}

/** `loadConfigFile` for a document at hand. */
export function checkConfig<Schema extends z.ZodType>(
  document: ConfigDocument,
  format: ConfigFormat<Schema>,
): LoadedConfig<z.output<Schema>> {
  const errors: ConfigProblem[] = [...document.problems];
  const warnings: ConfigProblem[] = [];
  const result = format.schema.safeParse(document.data, { error: describeIssue });
  let previous = "";
  for (const issue of result.error?.issues ?? []) {
    // A list where text belongs is "too short", too: one word on a value is enough.
    const place = `${issue.code === "unrecognized_keys"} ${JSON.stringify(issue.path)}`;
    if (place !== previous) errors.push(...problemsOf(document, format, issue));
    previous = place;
  }
  format.check?.(document.data, {
    error: (path, message) => errors.push(document.problem(path, message, "value")),
    warning: (path, message) =>
      warnings.push({ ...document.problem(path, message, "value"), severity: "warning" }),
  });
  if (errors.length > 0 || !result.success) throw new ConfigError(document.file, [...errors, ...warnings]);
  return { config: result.data, warnings };
}

function problemsOf<Schema extends z.ZodType>(
  document: ConfigDocument,
  format: ConfigFormat<Schema>,
  issue: z.core.$ZodIssue,
): ConfigProblem[] {
  const path = issue.path.map((segment) => (typeof segment === "number" ? segment : String(segment)));
  if (issue.code === "unrecognized_keys") {
    const known = keysAt(format.schema, path);
    return issue.keys.map((key) => {
      const message = isUnsupported([...path, key], format.unsupported ?? [])
        ? "is not supported by this version of IOP; remove it"
        : unknownKey(key, known);
      return document.problem([...path, key], message, "key");
    });
  }
  if (issue.code === "invalid_key")
    return [document.problem(path, issue.issues[0]?.message ?? issue.message, "key")];
  return [document.problem(path, issue.message, "value")];
}

function unknownKey(key: string, known: readonly string[]): string {
  const near = nearest(key, known);
  if (near !== undefined) return `unknown key; did you mean "${near}"?`;
  return known.length === 0 ? "unknown key" : `unknown key; known here: ${known.join(", ")}`;
}

function isUnsupported(path: ConfigPath, patterns: readonly string[]): boolean {
  return patterns.some((pattern) => {
    const segments = pattern.split(".");
    return (
      segments.length === path.length &&
      segments.every((segment, index) => segment === "*" || segment === String(path[index]))
    );
  });
}

/** The keys that a schema's object at `path` has. */
function keysAt(schema: z.core.$ZodType, path: ConfigPath): string[] {
  let current = unwrap(schema);
  for (const segment of path) {
    let next: z.core.$ZodType | undefined;
    if (current instanceof z.ZodObject) next = current.shape[String(segment)];
    else if (current instanceof z.ZodArray) next = current.element;
    else if (current instanceof z.ZodRecord) next = current.valueType;
    if (next === undefined) return [];
    current = unwrap(next);
  }
  return current instanceof z.ZodObject ? Object.keys(current.shape) : [];
}

function unwrap(schema: z.core.$ZodType): z.core.$ZodType {
  let current = schema;
  for (;;) {
    if (
      current instanceof z.ZodOptional ||
      current instanceof z.ZodDefault ||
      current instanceof z.ZodPrefault
    ) {
      current = current.unwrap();
    } else if (current instanceof z.ZodPipe) current = current.in;
    else return current;
  }
}

/** Says what is expected, and of what was found only its kind: it may be a secret in the wrong place. */
function describeIssue(issue: z.core.$ZodRawIssue): string | undefined {
  const { code } = issue;
  if (code === "invalid_type") {
    if (issue.input === undefined) return "is missing";
    return `must be ${article(issue.expected)}, not ${kindOf(issue.input)}`;
  }
  if (code === "invalid_value")
    return `must be ${issue.values.length === 1 ? "" : "one of "}${issue.values.map(String).join(", ")}`;
  if (code === "too_small") {
    if (issue.origin === "string" || issue.origin === "array") return "must not be empty";
    return `must be ${issue.inclusive === false ? "above" : "at least"} ${issue.minimum}`;
  }
  if (code === "too_big") {
    if (issue.origin === "string") return `must be at most ${issue.maximum} characters long`;
    if (issue.origin === "array") return `must have at most ${issue.maximum} entries`;
    return `must be at most ${issue.maximum}`;
  }
  return undefined;
}

function article(expected: string): string {
  switch (expected) {
    case "object":
    case "record":
      return "a mapping of keys to values";
    case "array":
      return "a list";
    case "int":
      return "a whole number";
    case "boolean":
      return "true or false";
    case "string":
      return "text";
    default:
      return `a ${expected}`;
  }
}

function kindOf(value: unknown): string {
  if (value === null) return "empty";
  if (Array.isArray(value)) return "a list";
  if (typeof value === "object") return "a mapping";
  if (typeof value === "string") return "text";
  if (typeof value === "boolean") return "true or false";
  if (typeof value === "number") return Number.isInteger(value) ? "a number" : "a fraction";
  return typeof value;
}
