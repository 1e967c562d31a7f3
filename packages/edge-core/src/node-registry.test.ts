import { create } from "@bufbuild/protobuf";
import { ProviderHealth, ProviderStatusSchema, Session, createVirtualClock } from "@iop/wire";
import { memoryTransport } from "@iop/wire/memory";
import { describe, expect, test } from "vitest";

import { EventBus } from "./event-bus.ts";
import type { Owner } from "./node-registry.ts";
import { NodeRegistry } from "./node-registry.ts";
import { ResourceLedger } from "./resource-ledger.ts";
import type { Resource } from "./resource.ts";

const healthy = [create(ProviderStatusSchema, { id: "p", health: ProviderHealth.OK })];

async function world(): Promise<{
  registry: NodeRegistry;
  resource: Resource;
  session: Session;
  events: string[];
  claim: (instance: string) => Owner;
}> {
  const clock = createVirtualClock();
  const transport = memoryTransport({ clock });
  await transport.listen({
    accept: (connection) => connection.open({ data() {}, drained() {}, closed() {} }),
  });
  const connection = await transport.dial({ signal: new AbortController().signal });
  const handlers = { message(): void {}, closed(): void {} };
  const session = new Session({ connection, role: "edge", clock, handlers, maxFrameBytes: 65_536 });
  const ledger = new ResourceLedger(createVirtualClock());
  const plan = ledger.plan();
  const resource = plan.add("n", "p", { capacity: 1, enabled: true });
  plan.commit();
  const bus = new EventBus();
  const events: string[] = [];
  bus.on("node", ({ type, code }) => void events.push(`${type} ${code} live=${resource.live}`));
  const registry = new NodeRegistry({ ledger, events: bus, clock });
  const claim = (instance: string): Owner => {
    const owner = registry.claim("n", instance, session);
    if (owner === undefined) throw new Error("refused");
    return owner;
  };
  return { registry, resource, session, events, claim };
}

describe("ownership", () => {
  test("has one claim at a time, each of a generation of its own", async () => {
    const { registry, session, claim } = await world();
    const first = claim("a");
    expect(registry.claim("n", "b", session)).toBeUndefined();
    registry.disconnect(first, "closed", "");
    expect(claim("a").generation).toBeGreaterThan(first.generation);
  });

  test("is for others only once it is ready, which happens once", async () => {
    const { registry, resource, events, claim } = await world();
    const owner = claim("a");
    expect([registry.ready("n"), registry.dispatchable("n"), resource.live]).toEqual([
      undefined,
      undefined,
      false,
    ]);
    expect(registry.activate(owner, healthy)).toBe(true);
    expect([registry.ready("n"), registry.dispatchable("n"), resource.live]).toEqual([owner, owner, true]);
    const lease = resource.acquire(0);
    expect(registry.activate(owner, healthy)).toBe(false);
    expect(resource.inFlight).toBe(1);
    lease?.release();
    expect(events).toEqual(["connected undefined live=true"]);
  });

  test("ends with the resources offline before anybody hears of it", async () => {
    const { registry, events, claim } = await world();
    const owner = claim("a");
    registry.activate(owner, healthy);
    registry.disconnect(owner, "connection_lost", "");
    registry.disconnect(owner, "connection_lost", "");
    expect(events).toEqual(["connected undefined live=true", "disconnected connection_lost live=false"]);
  });

  test("of an old claim can do nothing to the current one, even of the same instance", async () => {
    const { registry, resource, events, claim } = await world();
    const old = claim("a");
    registry.activate(old, healthy);
    registry.disconnect(old, "superseded", "");
    const current = claim("a");
    expect(registry.activate(old, healthy)).toBe(false);
    expect(registry.isCurrent(old)).toBe(false);
    registry.activate(current, healthy);
    registry.drain(old);
    registry.disconnect(old, "connection_lost", "");
    expect(registry.dispatchable("n")).toBe(current);
    expect(resource).toMatchObject({ live: true, generation: current.generation });
    expect(events).toHaveLength(3);
  });
});
