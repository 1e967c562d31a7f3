import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { BufferedBytes } from "./buffered-bytes.ts";
import { createHttpSurface } from "./http-surface.ts";
import { FakeEdge } from "./testing/fake-edge.ts";
import { matchesGlob } from "./model-glob.ts";
import { responseHead } from "./response-head.ts";

describe("globs of models", () => {
  it.each([
    ["*", "", true],
    ["*", "anything/at-all", true],
    ["gpt-4", "gpt-4", true],
    ["gpt-4", "gpt-4o", false],
    ["gpt-*", "gpt-", true],
    ["*-mini", "gpt-mini", true],
    ["a*a", "a", false],
    ["a*b*a", "aba", true],
    ["a*b*c", "acb", false],
    ["*ab*ab*", "ab", false],
    ["g.t", "gpt", false],
    ["[a]", "a", false],
    ["", "", true],
    ["", "a", false],
  ])("%s and %s: %s", (glob, name, matches) => {
    expect(matchesGlob(glob, name)).toBe(matches);
  });

  it("agree with the regular expression", () => {
    const text = fc.string({ unit: fc.constantFrom("a", "b", "*") });
    fc.assert(
      fc.property(text, fc.string({ unit: fc.constantFrom("a", "b") }), (glob, name) => {
        const pattern = new RegExp(`^${glob.replaceAll("*", ".*")}$`);
        expect(matchesGlob(glob, name)).toBe(pattern.test(name));
      }),
      { numRuns: 1_000 },
    );
  });
});

describe("the head of a response", () => {
  it("keeps every end-to-end header, in order", () => {
    const name = fc.constantFrom(
      "Set-Cookie",
      "x-a",
      "X-A",
      "ETag",
      "Connection",
      "TE",
      "Keep-Alive",
      "X-Iop-Y",
    );
    fc.assert(
      fc.property(fc.array(fc.tuple(name, fc.constantFrom("1", "x-a, q", "close"))), (source) => {
        const dropped = new Set(["connection", "te", "keep-alive", "x-iop-y"]);
        for (const [n, value] of source)
          if (n === "Connection") for (const token of value.split(",")) dropped.add(token.trim());
        const kept = source.filter(([n]) => !dropped.has(n.toLowerCase()));
        const head = responseHead(200, source, ["x-iop-request-id", "id"]);
        expect(head.headers).toEqual([...kept.flat(), "x-accel-buffering", "no", "x-iop-request-id", "id"]);
      }),
    );
  });
});

describe("the bytes of all bodies together", () => {
  it("are never more than the limit, and all come back", () => {
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.nat({ max: 3 }), fc.option(fc.nat({ max: 60 }), { nil: undefined }))),
        (steps) => {
          const buffered = new BufferedBytes(100);
          const shares = Array.from({ length: 4 }, () => buffered.share());
          for (const [at, bytes] of steps) {
            const before = buffered.held;
            const fits = before + (bytes ?? 0) <= 100;
            if (bytes === undefined) shares[at]?.release();
            else expect(shares[at]?.take(bytes)).toBe(fits);
            if (bytes !== undefined) expect(buffered.held).toBe(fits ? before + bytes : before);
            expect(buffered.held).toBeLessThanOrEqual(100);
          }
          for (const share of shares) share.release();
          for (const share of shares) share.release();
          expect(buffered.held).toBe(0);
        },
      ),
    );
  });
});

it.each([{ bodyBytes: 0 }, { bufferedRequestBytes: -1 }, { slowConsumerMs: 1.5 }])(
  "options that make no sense are refused by name: %o",
  (options) => {
    const [name = ""] = Object.keys(options);
    expect(() => createHttpSurface({ edge: new FakeEdge(), access: { apiKeys: [] }, ...options })).toThrow(
      name,
    );
  },
);
