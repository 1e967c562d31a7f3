/** Bytes of bodies that went through this Edge since its start; the streams add to it as they relay. */
export interface RelayedBytes {
  /** To providers. */
  request: number;
  /** To callers. */
  response: number;
}
