type Schema = Readonly<Record<string, unknown>>;

/** Deepest nesting that is filled in; a schema may refer to itself. */
const MAX_DEPTH = 4;

/** A value that fits a JSON Schema, as far as its plain keywords go: the first that comes to mind, always the same. */
export function valueFor(schema: Schema, number: (bound: number) => number, depth = 0): unknown {
  const { type, enum: choices, const: only, default: standard, properties, items } = schema;
  if (only !== undefined) return only;
  if (Array.isArray(choices) && choices.length > 0) return choices[number(choices.length)];
  if (standard !== undefined) return standard;
  const kind: unknown = Array.isArray(type) ? type[0] : type;
  if (kind === "integer" || kind === "number") return withinBounds(schema, number);
  if (kind === "boolean") return number(2) === 1;
  if (kind === "null") return null;
  if (kind === "array")
    return isSchema(items) && depth < MAX_DEPTH ? [valueFor(items, number, depth + 1)] : [];
  if (kind === "object" || isSchema(properties)) {
    if (!isSchema(properties) || depth >= MAX_DEPTH) return {};
    return Object.fromEntries(
      Object.entries(properties)
        .filter((entry): entry is [string, Schema] => isSchema(entry[1]))
        .map(([name, property]) => [name, valueFor(property, number, depth + 1)]),
    );
  }
  return `value-${number(1000)}`;
}

function withinBounds({ minimum, maximum }: Schema, number: (bound: number) => number): number {
  const low = typeof minimum === "number" ? Math.ceil(minimum) : 0;
  const high = typeof maximum === "number" ? Math.floor(maximum) : low + 99;
  return low + number(Math.max(1, high - low + 1));
}

function isSchema(value: unknown): value is Schema {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
