import * as fc from "fast-check";
import { describe, expect, test } from "vitest";

import type { Place } from "./arrival-list.ts";
import type { Waiting } from "./waiting-line.ts";
import { WaitingLine } from "./waiting-line.ts";

interface Guest extends Waiting {
  readonly name: string;
}

function guest(name: string, arrival: number, priority = 0, demand = 0): Guest {
  return { name, arrival, priority, demand };
}

/** Whether `a` is to be served before `b`. */
function isBefore(a: Waiting, b: Waiting): boolean {
  return a.priority !== b.priority ? a.priority > b.priority : a.arrival < b.arrival;
}

const everybody = (): boolean => true;

/** A line whose guests are taken out by themselves. */
class Row {
  readonly line = new WaitingLine<Guest>();
  readonly #places = new Map<Guest, Place<Guest>>();

  add(one: Guest): void {
    this.#places.set(one, this.line.add(one));
  }

  remove(one: Guest): boolean {
    const place = this.#places.get(one);
    return place !== undefined && this.line.remove(place);
  }

  next(fits: (one: Guest) => boolean = everybody): Guest | undefined {
    return this.line.next(fits);
  }
}

describe("a line", () => {
  test("serves by priority, then by arrival", () => {
    const line = new Row();
    for (const one of [guest("b", 2), guest("a", 1), guest("high", 4, 9), guest("c", 3), guest("low", 0, -1)])
      line.add(one);
    const order: string[] = [];
    for (let next = line.next(); next !== undefined; next = line.next()) {
      order.push(next.name);
      line.remove(next);
    }
    expect(order).toEqual(["high", "a", "b", "c", "low"]);
  });

  test("one who comes back stands where it stood", () => {
    const line = new Row();
    const [a, b, c, d] = [guest("a", 1), guest("b", 2), guest("c", 3), guest("d", 4)];
    for (const one of [a, b, c, d]) line.add(one);
    line.remove(c);
    line.remove(a);
    line.add(c);
    line.add(a);
    const order: string[] = [];
    for (const one of [a, b, c, d]) {
      order.push(line.next()?.name ?? "");
      line.remove(one);
    }
    expect(order).toEqual(["a", "b", "c", "d"]);
  });

  test("who does not fit holds up those alike, and nobody else", () => {
    const line = new Row();
    line.add(guest("long", 1, 0, 1));
    line.add(guest("long too", 2, 0, 1));
    line.add(guest("normal", 3));
    line.add(guest("low", 4, -1));
    const asked: string[] = [];
    const fits = ({ name, demand }: Guest): boolean => {
      asked.push(name);
      return demand === 0;
    };
    expect(line.next(fits)?.name).toBe("normal");
    expect(asked).not.toContain("long too");
  });

  test("answers with the best of another line where nobody here comes before it", () => {
    const row = new Row();
    for (const one of [guest("first", 5), guest("second", 7)]) row.add(one);
    const next = (best: Guest): string | undefined => row.line.next(everybody, best)?.name;
    expect(next(guest("older", 4))).toBe("older");
    expect(next(guest("younger", 6))).toBe("first");
    expect(next(guest("lower", 1, -1))).toBe("first");
    expect(next(guest("higher", 9, 1))).toBe("higher");
    expect(row.line.next(() => false, guest("younger", 6))?.name).toBe("younger");
    expect(new Row().line.next(everybody, guest("other", 1))?.name).toBe("other");
  });

  test("forgets who has left, once", () => {
    const line = new Row();
    const one = guest("a", 1);
    expect(line.remove(one)).toBe(false);
    line.add(one);
    expect([line.line.size, line.remove(one), line.remove(one), line.line.size]).toEqual([1, true, false, 0]);
    expect(line.next()).toBeUndefined();
  });
});

test("under any order of comings and goings it is a sorted list", () => {
  type Step =
    | { readonly do: "add"; readonly priority: number; readonly demand: number; readonly back: number }
    | { readonly do: "remove"; readonly which: number }
    | { readonly do: "serve"; readonly refused: readonly number[] };
  const step: fc.Arbitrary<Step> = fc.oneof(
    {
      weight: 3,
      arbitrary: fc.record({
        do: fc.constant("add" as const),
        priority: fc.integer({ min: -2, max: 2 }),
        demand: fc.nat(2),
        back: fc.oneof({ weight: 3, arbitrary: fc.constant(0) }, fc.nat(40)),
      }),
    },
    fc.record({ do: fc.constant("remove" as const), which: fc.nat(50) }),
    {
      weight: 2,
      arbitrary: fc.record({ do: fc.constant("serve" as const), refused: fc.subarray([0, 1, 2]) }),
    },
  );
  fc.assert(
    fc.property(fc.array(step, { maxLength: 120 }), (steps) => {
      const line = new Row();
      let model: Guest[] = [];
      let arrivals = 0;
      for (const action of steps) {
        if (action.do === "add") {
          // One who comes back is between others: arrivals are no longer whole numbers, but each its own.
          arrivals++;
          const one = guest(
            "",
            arrivals - action.back - (action.back > 0 ? arrivals / 1e6 : 0),
            action.priority,
            action.demand,
          );
          line.add(one);
          model.push(one);
        } else {
          const found =
            action.do === "remove"
              ? model[action.which % Math.max(1, model.length)]
              : model
                  .filter(({ demand }) => !action.refused.includes(demand))
                  .reduce<Guest | undefined>(
                    (best, one) => (best === undefined || isBefore(one, best) ? one : best),
                    undefined,
                  );
          if (action.do === "serve")
            expect(line.next(({ demand }) => !action.refused.includes(demand))).toBe(found);
          if (found === undefined) continue;
          expect(line.remove(found)).toBe(true);
          model = model.filter((one) => one !== found);
        }
        expect(line.line.size).toBe(model.length);
        for (const priority of [-2, 0, 2])
          expect(line.line.upTo(priority)).toBe(model.filter((one) => one.priority >= priority).length);
        expect(new Set(line.line.all())).toEqual(new Set(model));
      }
    }),
    { numRuns: 300 },
  );
});
