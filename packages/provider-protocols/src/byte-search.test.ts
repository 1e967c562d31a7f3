import * as fc from "fast-check";
import { expect, test } from "vitest";
import { createByteSearch } from "./byte-search.ts";
import { bytesOf } from "./testing/chunkings.ts";

test("finds what indexOf of strings finds", () => {
  const text = fc.string({ unit: fc.constantFrom("a", "b", "c"), maxLength: 60 });
  const needle = fc.string({ unit: fc.constantFrom("a", "b", "c"), minLength: 1, maxLength: 6 });
  fc.assert(
    fc.property(text, needle, fc.nat(20), (hay, wanted, from) => {
      expect(createByteSearch(wanted)(bytesOf(hay), from)).toBe(hay.indexOf(wanted, from));
    }),
    { numRuns: 3000 },
  );
});
