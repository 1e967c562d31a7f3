import * as fc from "fast-check";
import { expect, test } from "vitest";

import { ReconnectPolicy } from "./reconnect-policy.ts";

test("every wait is within 20 % of the interval, or what the edge asks for, up to ten intervals", () => {
  fc.assert(
    fc.property(
      fc.double({ min: 0, max: 0.999_999, noNaN: true }),
      fc.nat({ max: 1_000_000 }),
      fc.nat({ max: 100_000 }),
      (random, retryAfterMs, readyMs) => {
        const policy = new ReconnectPolicy({ maxAttempts: 0, intervalMs: 1_000, random: () => random });
        const wait = policy.ended({ retryAfterMs, readyMs }) ?? Number.NaN;
        expect(wait).toBeGreaterThanOrEqual(Math.max(800, Math.min(retryAfterMs, 10_000)));
        expect(wait).toBeLessThanOrEqual(Math.min(10_000, Math.max(1_200, Math.ceil(retryAfterMs * 1.2))));
      },
    ),
  );
});

test("failures in a row are counted; a session that was ready for 30 s starts over; 0 is unlimited", () => {
  const options = { intervalMs: 1_000, random: () => 0.5 };
  const failed = { retryAfterMs: 0, readyMs: 29_999 };
  const stable = { retryAfterMs: 0, readyMs: 30_000 };
  const three = new ReconnectPolicy({ ...options, maxAttempts: 3 });
  expect([failed, failed, stable, failed, failed, failed].map((end) => three.ended(end))).toEqual([
    1_000,
    1_000,
    1_000,
    1_000,
    1_000,
    undefined,
  ]);
  const one = new ReconnectPolicy({ ...options, maxAttempts: 1 });
  expect([one.ended(stable), one.ended(failed)]).toEqual([1_000, undefined]);
  const unlimited = new ReconnectPolicy({ ...options, maxAttempts: 0 });
  for (let count = 0; count < 1_000; count++) expect(unlimited.ended(failed)).toBe(1_000);
});
