/** The value that half of `values` are below. */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  const upper = sorted[middle] ?? Number.NaN;
  return sorted.length % 2 === 1 ? upper : ((sorted[middle - 1] ?? Number.NaN) + upper) / 2;
}

/** `median [least-most]`, with `digits` decimals. */
export function spread(values: readonly number[], digits: number): string {
  const format = (value: number): string => value.toFixed(digits);
  return `${format(median(values))} [${format(Math.min(...values))}-${format(Math.max(...values))}]`;
}
