/** HTTP headers in order, repeats kept. Names as received; comparisons ignore case. */
export type HeaderList = ReadonlyArray<readonly [name: string, value: string]>;
