import { create } from "@bufbuild/protobuf";
import type { ProviderStatus } from "@iop/wire";
import { createVirtualClock } from "@iop/wire";
import { ProviderHealth, ProviderStatusSchema } from "@iop/wire";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";

import { ResourceLedger } from "./resource-ledger.ts";
import type { Lease, Resource, ResourceOptions } from "./resource.ts";

function status(
  maxConcurrency: number,
  health: ProviderHealth = ProviderHealth.OK,
  reason = "",
): ProviderStatus {
  return create(ProviderStatusSchema, { id: "p", maxConcurrency, health, reason });
}

/** Makes `n` / `p` the only provider. */
function configured(ledger: ResourceLedger, options: ResourceOptions): Resource {
  const plan = ledger.plan();
  const resource = plan.add("n", "p", options);
  plan.commit();
  return resource;
}

function online(capacity: number, reported = 0): { ledger: ResourceLedger; resource: Resource } {
  const ledger = new ResourceLedger(createVirtualClock());
  const resource = configured(ledger, { capacity, enabled: true });
  ledger.activate("n", 1, [status(reported)]);
  return { ledger, resource };
}

function granted(resource: Resource): Lease {
  const lease = resource.acquire(0);
  if (lease === undefined) throw new Error("no lease");
  return lease;
}

describe("a resource", () => {
  test("is offline and empty until its node is ready", () => {
    const resource = configured(new ResourceLedger(createVirtualClock()), { capacity: 2, enabled: true });
    expect(resource).toMatchObject({
      live: false,
      health: "offline",
      effectiveCapacity: 0,
      configuredCapacity: 2,
    });
    expect(resource.acquire(0)).toBeUndefined();
  });

  test("has the lower of the configured and the reported capacity", () => {
    expect(online(4, 3).resource.effectiveCapacity).toBe(3);
    expect(online(4, 9).resource.effectiveCapacity).toBe(4);
    expect(online(4, 0).resource.effectiveCapacity).toBe(4);
  });

  test("gives no more leases than it has room for", () => {
    const { resource } = online(2);
    const first = granted(resource);
    granted(resource);
    expect(resource.acquire(0)).toBeUndefined();
    first.release();
    first.release();
    expect(resource.inFlight).toBe(1);
    granted(resource);
    expect(resource.acquire(0)).toBeUndefined();
  });

  test("a lowered capacity stops new leases and keeps the old ones", () => {
    const { ledger, resource } = online(2);
    granted(resource);
    const second = granted(resource);
    ledger.report("n", 1, status(1));
    expect(resource).toMatchObject({ inFlight: 2, effectiveCapacity: 1 });
    second.release();
    expect(resource.acquire(0)).toBeUndefined();
  });

  test("a quarantined lease is returned, and lowers the capacity until it is released", () => {
    const { resource } = online(2);
    const lease = granted(resource);
    lease.quarantine();
    lease.quarantine();
    expect(resource).toMatchObject({ inFlight: 0, quarantined: 1, effectiveCapacity: 1 });
    lease.release();
    expect(resource).toMatchObject({ inFlight: 0, quarantined: 0, effectiveCapacity: 2 });
    lease.quarantine();
    expect(resource.quarantined).toBe(0);
  });

  test("health says whether it serves; the reason is kept short", () => {
    const { ledger, resource } = online(1);
    ledger.report("n", 1, status(0, ProviderHealth.DEGRADED, "x".repeat(1_000)));
    expect(resource).toMatchObject({ live: true, health: "degraded", reason: "x".repeat(256) });
    ledger.report("n", 1, status(0, ProviderHealth.OFFLINE, "down"));
    expect(resource).toMatchObject({ live: false, health: "offline", reason: "down", effectiveCapacity: 0 });
    expect(resource.acquire(0)).toBeUndefined();
    ledger.report("n", 1, status(0, ProviderHealth.UNSPECIFIED));
    expect(resource.live).toBe(false);
  });

  test("one that its node does not report does not serve", () => {
    const ledger = new ResourceLedger(createVirtualClock());
    const resource = configured(ledger, { capacity: 1, enabled: true });
    ledger.activate("n", 1, []);
    expect(resource).toMatchObject({ live: false, reason: "the Node has not reported it" });
  });

  test("one that is not enabled does not serve, whatever its node says", () => {
    const ledger = new ResourceLedger(createVirtualClock());
    const resource = configured(ledger, { capacity: 1, enabled: false });
    ledger.activate("n", 1, [status(1)]);
    expect(resource.live).toBe(false);
  });

  test("what an old generation does late changes nothing in the new one", () => {
    const { ledger, resource } = online(2);
    const [released, quarantined] = [granted(resource), granted(resource)];
    ledger.fence("n", 1);
    expect(resource).toMatchObject({ inFlight: 0, live: false, effectiveCapacity: 0 });
    ledger.activate("n", 2, [status(0)]);
    granted(resource);
    released.release();
    quarantined.quarantine();
    ledger.report("n", 1, status(1, ProviderHealth.OFFLINE));
    ledger.fence("n", 1);
    expect(resource).toMatchObject({
      inFlight: 1,
      quarantined: 0,
      live: true,
      generation: 2,
      effectiveCapacity: 2,
    });
  });
});

describe("under any order of events", () => {
  type State = "live" | "quarantined" | "gone";
  type Step =
    | { readonly do: "activate" | "fence" | "acquire" }
    | { readonly do: "fenceOld"; readonly by: number }
    | { readonly do: "release" | "quarantine"; readonly which: number }
    | {
        readonly do: "report";
        readonly capacity: number;
        readonly health: ProviderHealth;
        readonly by: number;
      };

  const step: fc.Arbitrary<Step> = fc.oneof(
    fc.record({ do: fc.constantFrom("activate" as const, "fence" as const) }),
    { arbitrary: fc.record({ do: fc.constant("acquire" as const) }), weight: 4 },
    fc.record({ do: fc.constant("fenceOld" as const), by: fc.integer({ min: 1, max: 3 }) }),
    {
      arbitrary: fc.record({
        do: fc.constantFrom("release" as const, "quarantine" as const),
        which: fc.nat(30),
      }),
      weight: 4,
    },
    fc.record({
      do: fc.constant("report" as const),
      capacity: fc.integer({ min: 0, max: 5 }),
      health: fc.constantFrom(ProviderHealth.OK, ProviderHealth.DEGRADED, ProviderHealth.OFFLINE),
      by: fc.nat(1),
    }),
  );

  test("the counts are those of the live leases, and no grant is over the capacity", () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 4 }), fc.array(step, { maxLength: 80 }), (capacity, steps) => {
        const ledger = new ResourceLedger(createVirtualClock());
        const resource = configured(ledger, { capacity, enabled: true });
        const leases: { lease: Lease; state: State }[] = [];
        const count = (state: State): number => leases.filter((entry) => entry.state === state).length;
        const drop = (): void => {
          for (const entry of leases) entry.state = "gone";
        };
        let generation = 0;
        let reported = Number.POSITIVE_INFINITY;
        let up = false;
        let healthy = false;

        for (const action of steps) {
          switch (action.do) {
            case "activate":
              drop();
              ledger.activate("n", ++generation, [status(0)]);
              [up, healthy, reported] = [true, true, Number.POSITIVE_INFINITY];
              break;
            case "fence":
              if (up) drop();
              ledger.fence("n", generation);
              up = false;
              break;
            case "fenceOld":
              ledger.fence("n", generation - action.by);
              break;
            case "acquire": {
              const room =
                up && healthy ? Math.min(capacity, reported) - count("quarantined") - count("live") : 0;
              const lease = resource.acquire(0);
              expect(lease !== undefined).toBe(room > 0);
              if (lease !== undefined) leases.push({ lease, state: "live" });
              break;
            }
            case "release":
            case "quarantine": {
              const entry = leases[action.which % Math.max(1, leases.length)];
              if (entry === undefined) break;
              entry.lease[action.do]();
              if (action.do === "release") entry.state = "gone";
              else if (entry.state === "live") entry.state = "quarantined";
              break;
            }
            case "report":
              ledger.report("n", generation - action.by, status(action.capacity, action.health));
              if (action.by > 0 || !up) break;
              reported = action.capacity === 0 ? Number.POSITIVE_INFINITY : action.capacity;
              healthy = action.health !== ProviderHealth.OFFLINE;
              break;
          }
          expect(resource.inFlight).toBe(count("live"));
          expect(resource.quarantined).toBe(count("quarantined"));
          expect(resource.effectiveCapacity).toBeGreaterThanOrEqual(0);
          expect(resource.live).toBe(up && healthy);
        }
      }),
      { numRuns: 500 },
    );
  });
});
