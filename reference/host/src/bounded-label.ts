/** What stands for all values beyond the bound. */
export const OTHER = "<other>";

/** Distinct values that a label may take. */
const MAX_VALUES = 64;

/**
 * Keeps a label whose values others choose (a Node names its error codes) from growing the metrics without
 * bound: words that look like codes, as many as come first.
 */
export class BoundedLabel {
  readonly #known = new Set<string>();

  of(value: string): string {
    if (this.#known.has(value)) return value;
    if (this.#known.size >= MAX_VALUES || !/^[a-z][a-z0-9_]{0,63}$/.test(value)) return OTHER;
    this.#known.add(value);
    return value;
  }
}
