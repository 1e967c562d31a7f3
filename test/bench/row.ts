/** One line of the table. */
export interface Row {
  /** What was measured, with its unit. */
  readonly what: string;
  readonly direct: string;
  readonly proxy: string;
  readonly iop: string;
  /** IOP over the two-hop proxy; where there is none, over the least of its kind. */
  readonly ratio: number;
  readonly goal: string;
  /** Undefined where there is no goal. */
  readonly reached: boolean | undefined;
}
