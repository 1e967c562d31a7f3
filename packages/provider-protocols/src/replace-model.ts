import type { ByteRange } from "./byte-range.ts";
import { ProtocolError } from "./protocol-error.ts";

const encoder = new TextEncoder();

/**
 * The body with the value at `range` (what the scanner reported as `model`) replaced by `newModel` as a
 * JSON string. Every other byte is the same and is not copied: chunks that the range does not touch are
 * handed on as they are, the others as views. Where `newModel` is spelled so already, returns `chunks`.
 * @throws ProtocolError `invalid_range`
 */
export function replaceModel(
  chunks: readonly Uint8Array[],
  range: ByteRange,
  newModel: string,
): readonly Uint8Array[] {
  const replacement = encoder.encode(JSON.stringify(newModel));
  const rangeEnd = range.offset + range.length;
  const result: Uint8Array[] = [];
  let same = replacement.length === range.length;
  let start = 0;
  for (const chunk of chunks) {
    const end = start + chunk.length;
    if (end <= range.offset || start >= rangeEnd) {
      result.push(chunk);
    } else {
      const from = Math.max(range.offset, start);
      const to = Math.min(rangeEnd, end);
      const old = chunk.subarray(from - start, to - start);
      same &&= old.every((byte, index) => byte === replacement[from - range.offset + index]);
      if (from > start) result.push(chunk.subarray(0, from - start));
      if (from === range.offset) result.push(replacement);
      if (to < end) result.push(chunk.subarray(to - start));
    }
    start = end;
  }
  if (range.offset < 0 || range.length < 1 || rangeEnd > start) {
    throw new ProtocolError("invalid_range", "The range lies outside the body");
  }
  return same ? chunks : result;
}
