import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { CapacityGate, type CapacityPermit } from "./capacity-gate.ts";

type Step =
  | { readonly do: "acquire" }
  /** Releases the permit that was handed out at this position, again if it was before. */
  | { readonly do: "release"; readonly at: number }
  | { readonly do: "limit"; readonly to: number };

const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 4, arbitrary: fc.constant({ do: "acquire" } as const) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant("release" as const), at: fc.nat(30) }) },
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constant("limit" as const), to: fc.integer({ min: 1, max: 8 }) }),
  },
);

describe("CapacityGate", () => {
  it("counts what is out, and admits exactly while that is below the limit", () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 8 }), fc.array(step, { maxLength: 100 }), (first, steps) => {
        const gate = new CapacityGate(first);
        const permits: CapacityPermit[] = [];
        const out = new Set<number>();
        let limit = first;
        for (const action of steps) {
          if (action.do === "acquire") {
            const permit = gate.tryAcquire();
            expect(permit !== undefined).toBe(out.size < limit);
            if (permit !== undefined) out.add(permits.push(permit) - 1);
          } else if (action.do === "release") {
            permits[action.at]?.release();
            out.delete(action.at);
          } else {
            limit = action.to;
            gate.setLimit(limit);
          }
          expect(gate.inFlight).toBe(out.size);
          expect(gate.limit).toBe(limit);
        }
        for (const permit of permits) permit.release();
        expect(gate.inFlight).toBe(0);
      }),
    );
  });

  it("gives a place back at the end of a using block", () => {
    const gate = new CapacityGate(1);
    {
      using permit = gate.tryAcquire();
      expect(permit).toBeDefined();
      expect(gate.tryAcquire()).toBeUndefined();
    }
    expect(gate.inFlight).toBe(0);
  });

  it("lets running work finish after the limit was lowered", () => {
    const gate = new CapacityGate(3);
    const permits = [gate.tryAcquire(), gate.tryAcquire(), gate.tryAcquire()];
    gate.setLimit(1);
    expect(gate.inFlight).toBe(3);
    permits[0]?.release();
    permits[1]?.release();
    expect(gate.tryAcquire()).toBeUndefined();
    permits[2]?.release();
    expect(gate.tryAcquire()).toBeDefined();
  });

  it("tells when the permits are back that were out when it was asked, whatever was given out since", async () => {
    const gate = new CapacityGate(3);
    const [first, second] = [gate.tryAcquire(), gate.tryAcquire()];
    const told: string[] = [];
    const tell = async (what: string): Promise<void> => {
      await gate.idle();
      told.push(what);
    };
    const early = tell("early");
    const third = gate.tryAcquire();
    const late = tell("late");
    first?.release();
    await Promise.resolve();
    expect(told).toEqual([]);
    second?.release();
    await early;
    expect(told).toEqual(["early"]);
    third?.release();
    await late;
  });

  it("tells when the last permit is back", async () => {
    const gate = new CapacityGate(2);
    await gate.idle();
    const [first, second] = [gate.tryAcquire(), gate.tryAcquire()];
    let told = 0;
    const tell = async (): Promise<void> => {
      await gate.idle();
      told++;
    };
    const both = Promise.all([tell(), tell()]);
    first?.release();
    first?.release();
    await Promise.resolve();
    expect(told).toBe(0);
    second?.release();
    await both;
    expect(told).toBe(2);
  });

  it.each([0, -1, 1.5, Number.NaN, Number.POSITIVE_INFINITY])("refuses a limit of %s", (limit) => {
    expect(() => new CapacityGate(limit)).toThrow(RangeError);
    const gate = new CapacityGate(2);
    expect(() => gate.setLimit(limit)).toThrow(RangeError);
    expect(gate.limit).toBe(2);
  });
});
