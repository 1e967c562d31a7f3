import * as fc from "fast-check";
import { describe, expect, test } from "vitest";

import { FrameDecoder } from "./frame-decoder.ts";
import { WireError } from "./wire-error.ts";

const MAX = 1000;

function framed(payloads: readonly Uint8Array[]): Uint8Array {
  return Uint8Array.from(
    payloads.flatMap((payload) => [0, 0, payload.length >> 8, payload.length & 0xff, ...payload]),
  );
}

function decode(chunks: readonly Uint8Array[]): Uint8Array[] {
  const decoder = new FrameDecoder(MAX);
  const frames: Uint8Array[] = [];
  for (const chunk of chunks) {
    decoder.push(chunk, (frame) => {
      frames.push(frame.slice());
      return true;
    });
  }
  return frames;
}

describe("FrameDecoder", () => {
  test("decodes the same frames under every split", () => {
    fc.assert(
      fc.property(
        fc.array(fc.uint8Array({ minLength: 1, maxLength: 300 }), { maxLength: 8 }),
        fc.array(fc.nat(400), { maxLength: 40 }),
        (payloads, cuts) => {
          const bytes = framed(payloads);
          const chunks: Uint8Array[] = [];
          let at = 0;
          for (const cut of cuts) {
            chunks.push(bytes.subarray(at, at + cut));
            at += cut;
          }
          chunks.push(bytes.subarray(at));
          expect(decode(chunks)).toEqual(payloads);
        },
      ),
    );
  });

  test("decodes byte by byte", () => {
    const payloads = [
      Uint8Array.of(1),
      Uint8Array.from({ length: 260 }, (_, i) => i & 0xff),
      Uint8Array.of(2, 3),
    ];
    expect(decode([...framed(payloads)].map((byte) => Uint8Array.of(byte)))).toEqual(payloads);
  });

  test("a frame within a chunk is a view of it", () => {
    const bytes = framed([Uint8Array.of(1, 2, 3)]);
    new FrameDecoder(MAX).push(bytes, (frame) => {
      expect(frame.buffer).toBe(bytes.buffer);
      return true;
    });
  });

  test.each([
    ["length 0", [0, 0, 0, 0], "protocol_error"],
    ["over the limit by one", [0, 0, 3, 233], "frame_too_large"],
    ["the largest length", [255, 255, 255, 255], "frame_too_large"],
  ])("refuses %s before anything else", (_, prefix, code) => {
    for (const chunks of [[Uint8Array.from(prefix)], prefix.map((byte) => Uint8Array.of(byte))]) {
      const failure = attempt(() => decode(chunks));
      expect(WireError.is(failure) ? failure.code : failure).toBe(code);
    }
  });

  test("stops where the reader says so", () => {
    const seen: number[] = [];
    new FrameDecoder(MAX).push(framed([Uint8Array.of(1), Uint8Array.of(2)]), (frame) => {
      seen.push(frame[0] ?? -1);
      return false;
    });
    expect(seen).toEqual([1]);
  });
});

function attempt(act: () => unknown): unknown {
  try {
    return act();
  } catch (error) {
    return error;
  }
}
