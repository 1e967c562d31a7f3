import { createVirtualClock } from "@iop/wire";
import { describe, expect, test } from "vitest";

import type { ProviderShape } from "../test/pool-world.ts";
import { PoolWorld } from "../test/pool-world.ts";
import { OpenResources } from "./open-resources.ts";
import type { Resource } from "./resource.ts";

/** Live resources of these capacities, all of them open. */
function resources(...shapes: readonly ProviderShape[]): { open: OpenResources; all: Resource[] } {
  const ids = shapes.map((_, index) => `p${index}`);
  const world = new PoolWorld(createVirtualClock(), {
    nodes: { n: Object.fromEntries(shapes.map((shape, index) => [`p${index}`, shape])) },
    models: {},
  });
  world.online("n");
  const open = new OpenResources();
  const all = ids.map((id) => world.resource(`n/${id}`));
  for (const resource of all) open.add(resource);
  return { open, all };
}

function take(open: OpenResources, count: number, weights?: ReadonlyMap<Resource, number>): string[] {
  return Array.from({ length: count }, () => {
    const resource = open.leastLoaded(0, weights);
    resource?.acquire(0);
    return resource?.provider ?? "none";
  });
}

describe("the least loaded", () => {
  test("goes by what each is able to do", () => {
    const { open } = resources(1, 4);
    expect(take(open, 6)).toEqual(["p1", "p1", "p1", "p0", "p1", "none"]);
  });

  test("goes by weight", () => {
    const { open, all } = resources(40, 40);
    take(open, 40, new Map(all.slice(0, 1).map((resource) => [resource, 3])));
    expect(all.map(({ inFlight }) => inFlight)).toEqual([30, 10]);
  });

  test("takes turns among equals, also where one of several is busier", () => {
    const { open, all } = resources(8, 8, 8);
    all[0]?.acquire(0);
    const served = Array.from({ length: 6 }, () => {
      const resource = open.leastLoaded(0);
      resource?.acquire(0)?.release();
      return resource?.provider;
    });
    expect(served).toEqual(["p1", "p2", "p1", "p2", "p1", "p2"]);
  });

  test("has room for so long an input", () => {
    const { open, all } = resources({ capacity: 8, long: { capacity: 1, thresholdTokens: 10 } }, 2);
    all[1]?.acquire(0);
    expect(open.leastLoaded(10)?.provider).toBe("p0");
    all[0]?.acquire(10);
    expect(open.leastLoaded(10)?.provider).toBe("p1");
    expect(open.leastLoaded(9)?.provider).toBe("p0");
    all[1]?.acquire(0);
    expect(open.leastLoaded(10)).toBeUndefined();
  });

  test("is none once all are taken out, whatever was taken out before", () => {
    const { open, all } = resources(1, 1, 1);
    const [first, second, third] = all;
    if (first === undefined || second === undefined || third === undefined) throw new Error("three");
    open.set(second, false);
    open.set(second, false);
    open.add(first);
    expect(open.size).toBe(2);
    open.set(first, false);
    expect(open.leastLoaded(0)).toBe(third);
    open.set(third, false);
    expect(open.leastLoaded(0)).toBeUndefined();
    open.set(second, true);
    expect(open.leastLoaded(0)).toBe(second);
  });
});

describe("of more than 32", () => {
  test("all get their share", () => {
    const { open, all } = resources(...Array.from({ length: 100 }, () => 10));
    take(open, 500);
    const loads = all.map(({ inFlight }) => inFlight);
    expect(Math.max(...loads) - Math.min(...loads)).toBeLessThanOrEqual(2);
    expect(take(open, 501).filter((name) => name !== "none")).toHaveLength(500);
  });

  test("the only one that has a long place is found", () => {
    const full = { capacity: 4, long: { capacity: 0, thresholdTokens: 10 } };
    const { open } = resources(...Array.from({ length: 99 }, () => full), 4);
    for (let count = 0; count < 4; count++) expect(take(open, 0)).toEqual([]);
    expect(open.leastLoaded(10)?.provider).toBe("p99");
  });
});
