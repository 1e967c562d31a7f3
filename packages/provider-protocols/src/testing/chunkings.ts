import * as fc from "fast-check";

const encoder = new TextEncoder();

export function bytesOf(text: string): Uint8Array {
  return encoder.encode(text);
}

export function concat(chunks: readonly Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(chunks.reduce((sum, chunk) => sum + chunk.length, 0));
  let at = 0;
  for (const chunk of chunks) {
    whole.set(chunk, at);
    at += chunk.length;
  }
  return whole;
}

/** Cuts `bytes` at the given places (any order, repeats make empty chunks). */
export function cut(bytes: Uint8Array, places: readonly number[]): Uint8Array[] {
  const sorted = places.map((place) => Math.min(place, bytes.length)).sort((a, b) => a - b);
  const starts = [0, ...sorted];
  return starts.map((start, index) => bytes.subarray(start, sorted[index] ?? bytes.length));
}

/** One byte a chunk. */
export function singles(bytes: Uint8Array): Uint8Array[] {
  return Array.from(bytes, (_, index) => bytes.subarray(index, index + 1));
}

/** Places to cut a body of up to some hundred bytes. */
export const places: fc.Arbitrary<number[]> = fc.array(fc.nat(400), { maxLength: 12 });
