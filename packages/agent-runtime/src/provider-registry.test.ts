import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { defineAdapter, type Adapter, type ProviderConfig } from "./adapter.ts";
import type { Provider, ProviderContext } from "./provider.ts";
import { ProviderRegistry, type RegisteredProvider } from "./provider-registry.ts";
import { RuntimeError } from "./runtime-error.ts";

function configOf(id: string, over: Partial<ProviderConfig> = {}): ProviderConfig {
  return { id, adapter: "fake", capacity: 2, firstByteTimeoutMs: 0, idleTimeoutMs: 0, ...over };
}

/** An adapter whose instances behave as `parts` says for their name. */
function fake(parts: Readonly<Record<string, Partial<Provider>>> = {}): Adapter {
  return defineAdapter({
    kind: "fake",
    create: (config) => ({
      capabilities: () => ({ maxConcurrency: config.capacity, operations: [] }),
      ...parts[config.id],
    }),
  });
}

function registryOf(...adapters: Adapter[]): ProviderRegistry {
  return new ProviderRegistry({ adapters, context: { env: () => undefined } });
}

const { signal } = new AbortController();

function add(
  registry: ProviderRegistry,
  id: string,
  over?: Partial<ProviderConfig>,
): Promise<RegisteredProvider> {
  return registry.add(configOf(id, over), { signal });
}

const stuck = (): Promise<void> => Promise.withResolvers<void>().promise;

/** How `work` ended once it has: `done`, or the failure's code and message. */
function outcome(work: Promise<unknown>): { readonly said: string | undefined } {
  const end: { said: string | undefined } = { said: undefined };
  const follow = async (): Promise<void> => {
    try {
      await work;
      end.said = "done";
    } catch (error) {
      end.said = RuntimeError.is(error) ? `${error.code}: ${error.message}` : String(error);
    }
  };
  void follow();
  return end;
}

/** Lets `ms` pass, and what follows from it. */
async function pass(ms: number): Promise<void> {
  await vi.advanceTimersByTimeAsync(ms);
}

describe("ProviderRegistry", () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  it("finds a started instance by its name, with a gate as wide as the provider says", async () => {
    const started = Promise.withResolvers<void>();
    const registry = registryOf(fake({ a: { start: () => started.promise } }));
    const adding = add(registry, "a", { capacity: 3 });
    await pass(0);
    expect(() => registry.get("a")).toThrow('there is no provider "a" here');
    started.resolve();
    const made = await adding;
    expect(registry.get("a")).toBe(made);
    expect(made.gate.limit).toBe(3);
    expect(made.capabilities).toEqual({ maxConcurrency: 3, operations: [] });
    await registry.stop();
  });

  it("refuses with a code", async () => {
    const started = Promise.withResolvers<void>();
    const refusing = defineAdapter({
      kind: "refusing",
      create: () => {
        throw new RuntimeError("invalid_config", "endpoint: is missing");
      },
    });
    const registry = registryOf(fake({ slow: { start: () => started.promise } }), refusing);
    await add(registry, "a");
    const slow = add(registry, "slow");
    const refused = [
      add(registry, "a"),
      add(registry, "slow"),
      add(registry, "b", { adapter: "nothing" }),
      add(registry, "c", { adapter: "refusing" }),
    ].map(outcome);
    await pass(0);
    expect(refused.map(({ said }) => said)).toEqual([
      'duplicate_provider: there is a provider "a" already',
      'duplicate_provider: there is a provider "slow" already',
      'unknown_adapter: there is no adapter "nothing" here',
      "invalid_config: endpoint: is missing",
    ]);
    expect(() => registry.get("c")).toThrow(RuntimeError);
    expect(() => registryOf(fake(), fake())).toThrow('adapters: "fake" is there twice');
    started.resolve();
    await slow;
    await registry.stop();
  });

  it.each([
    [
      "fails to start",
      "no key",
      { start: () => Promise.reject(new RuntimeError("provider_unavailable", "no key")) },
    ],
    ["promises nothing", "positive integer", { capabilities: () => ({ maxConcurrency: 0, operations: [] }) }],
  ])("stops what %s, and frees its name", async (_what, reason, parts) => {
    let stopped = 0;
    const behaviour: Record<string, Partial<Provider>> = {
      a: { ...parts, stop: async () => void stopped++ },
    };
    const registry = registryOf(fake(behaviour));
    await expect(add(registry, "a")).rejects.toThrow(reason);
    expect(stopped).toBe(1);
    behaviour["a"] = {};
    expect(await add(registry, "a")).toBe(registry.get("a"));
    await registry.stop();
    expect(stopped).toBe(1);
  });

  it("does not wait without end for a provider that ignores its signal", async () => {
    const signals: AbortSignal[] = [];
    const start = ({ signal: inner }: ProviderContext): Promise<void> => {
      signals.push(inner);
      return stuck();
    };
    const registry = registryOf(fake({ late: { start }, cancelled: { start, stop: stuck } }));
    const late = outcome(add(registry, "late"));
    const abort = new AbortController();
    const cancelled = outcome(registry.add(configOf("cancelled"), { signal: abort.signal }));
    abort.abort();
    expect(signals.map(({ aborted }) => aborted)).toEqual([false, true]);
    await pass(4_999);
    expect(cancelled.said).toBeUndefined();
    await pass(1);
    expect(cancelled.said).toBe("cancelled: starting: cancelled");
    await pass(9_999);
    expect([signals[0]?.aborted, late.said]).toEqual([false, undefined]);
    await pass(1);
    expect(signals[0]?.aborted).toBe(true);
    expect(late.said).toBe("provider_unavailable: starting: over 15000 ms");
    expect(vi.getTimerCount()).toBe(0);
  });

  it("does not make anything of an aborted start", async () => {
    let started = 0;
    const registry = registryOf(fake({ a: { start: async () => void started++ } }));
    await expect(registry.add(configOf("a"), { signal: AbortSignal.abort() })).rejects.toThrow("cancelled");
    expect(started).toBe(0);
  });

  it("stops an instance once, after its work, and forgets it at once", async () => {
    let stopped = 0;
    const registry = registryOf(fake({ a: { stop: async () => void stopped++ } }));
    const { gate } = await add(registry, "a");
    const permit = gate.tryAcquire();
    const removed = outcome(registry.remove("a"));
    expect(() => registry.get("a")).toThrow("no provider");
    await pass(4_999);
    expect(stopped).toBe(0);
    permit?.release();
    await pass(0);
    expect([stopped, removed.said]).toEqual([1, "done"]);
    await registry.remove("a");
    await registry.stop();
    expect(stopped).toBe(1);
    expect(vi.getTimerCount()).toBe(0);
  });

  it("lets the work of a removed instance go on as long as its host does", async () => {
    let stopped = 0;
    const registry = registryOf(fake({ a: { stop: async () => void stopped++ } }));
    const old = await add(registry, "a");
    const permit = old.gate.tryAcquire();
    const after = Promise.withResolvers<void>();
    const removed = outcome(registry.remove("a", { after: after.promise }));
    const next = await add(registry, "a");
    next.gate.tryAcquire();
    await pass(3_600_000);
    expect([stopped, removed.said]).toEqual([0, undefined]);
    permit?.release();
    after.resolve();
    // The work of the next one, which has a place in the same gate, is not waited for.
    await pass(0);
    expect([stopped, removed.said]).toEqual([1, "done"]);
    const aborted = Promise.withResolvers<void>();
    void registry.remove("a", { after: aborted.promise });
    const all = outcome(registry.stop());
    await pass(60_000);
    aborted.resolve();
    await pass(4_999);
    expect([stopped, all.said]).toEqual([1, undefined]);
    await pass(1);
    expect([stopped, all.said]).toEqual([2, "done"]);
  });

  it("shares the places of a name with the work of the instance before", async () => {
    const registry = registryOf(fake());
    const before = await add(registry, "a", { capacity: 1 });
    await add(registry, "b");
    const deaf = before.gate.tryAcquire();
    const removed = outcome(registry.remove("a"));
    const next = await add(registry, "a", { capacity: 1 });
    expect(next).not.toBe(before);
    expect(next.gate.tryAcquire()).toBeUndefined();
    await pass(5_000);
    expect(removed.said).toBe("done");
    deaf?.release();
    next.gate.tryAcquire()?.release();
    void registry.remove("a");
    const fresh = await add(registry, "a", { capacity: 2 });
    expect(fresh.gate).not.toBe(next.gate);
    expect(fresh.gate.inFlight).toBe(0);
    await registry.stop();
  });

  it("stops all, past those that fail or hang, and waits for those that were being removed", async () => {
    const stopped: string[] = [];
    const slow = Promise.withResolvers<void>();
    const registry = registryOf(
      fake({
        a: { stop: () => Promise.reject(new Error("x")) },
        b: { stop: async () => void stopped.push("b") },
        c: { stop: () => slow.promise },
        d: { stop: stuck },
      }),
    );
    for (const id of ["a", "b", "c"]) await add(registry, id);
    void registry.remove("c");
    const first = outcome(registry.stop());
    await pass(0);
    expect([stopped, first.said]).toEqual([["b"], undefined]);
    slow.resolve();
    await pass(0);
    expect(first.said).toBe("done");
    await add(registry, "d");
    const second = outcome(registry.stop());
    await pass(4_999);
    expect(second.said).toBeUndefined();
    await pass(1);
    expect(second.said).toBe("done");
  });
});
