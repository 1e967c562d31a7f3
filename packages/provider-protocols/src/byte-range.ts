/** A part of a body, over the whole body as it was received (a leading byte order mark counts). */
export interface ByteRange {
  /** Bytes before it. */
  readonly offset: number;
  /** Its bytes. */
  readonly length: number;
}
