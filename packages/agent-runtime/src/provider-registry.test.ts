import { describe, expect, it } from "vitest";
import { defineAdapter, type Adapter, type ProviderConfig } from "./adapter.ts";
import type { Provider } from "./provider.ts";
import { ProviderRegistry } from "./provider-registry.ts";
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

const never = (): { signal: AbortSignal } => ({ signal: new AbortController().signal });

const stuck = (): Promise<void> => new Promise(() => {});

function codeOf(act: () => unknown): string | undefined {
  try {
    act();
  } catch (error) {
    return RuntimeError.is(error) ? error.code : "another error";
  }
  return undefined;
}

describe("ProviderRegistry", () => {
  it("finds an instance by its name, with a gate as wide as the provider says", () => {
    const registry = registryOf(fake());
    const made = registry.create(configOf("b", { capacity: 3 }));
    registry.create(configOf("a"));
    expect(registry.get("b")).toBe(made);
    expect(made.gate.limit).toBe(3);
    expect(registry.list().map(({ id }) => id)).toEqual(["b", "a"]);
  });

  it("refuses with a code", () => {
    const refusing = defineAdapter({
      kind: "refusing",
      create: () => {
        throw new RuntimeError("invalid_config", "endpoint: is missing");
      },
    });
    const registry = registryOf(fake(), refusing);
    registry.create(configOf("a"));
    expect(codeOf(() => registry.create(configOf("a")))).toBe("duplicate_provider");
    expect(codeOf(() => registry.create(configOf("b", { adapter: "nothing" })))).toBe("unknown_adapter");
    expect(codeOf(() => registry.create(configOf("c", { adapter: "refusing" })))).toBe("invalid_config");
    expect(codeOf(() => registry.get("c"))).toBe("unknown_provider");
    expect(codeOf(() => registryOf(fake(), fake()))).toBe("invalid_config");
    expect(registry.list()).toHaveLength(1);
  });

  it("starts each instance once, and says which failed", async () => {
    const started: string[] = [];
    const registry = registryOf(
      fake({
        ok: { start: async () => void started.push("ok") },
        bad: { start: () => Promise.reject(new RuntimeError("provider_unavailable", "no key")) },
        odd: { start: () => Promise.reject(new TypeError("x")) },
      }),
    );
    for (const id of ["ok", "bad", "odd", "plain"]) registry.create(configOf(id));
    const failures = await registry.start(never());
    expect(failures.map(({ id, error }) => [id, error.code])).toEqual([
      ["bad", "provider_unavailable"],
      ["odd", "internal"],
    ]);
    expect(await registry.start(never())).toEqual([]);
    expect(started).toEqual(["ok"]);
  });

  it("does not wait for a provider that ignores the signal", async () => {
    const registry = registryOf(fake({ stuck: { start: stuck, stop: stuck } }));
    registry.create(configOf("stuck"));
    const starting = new AbortController();
    const start = registry.start({ signal: starting.signal });
    starting.abort();
    expect((await start).map(({ error }) => error.code)).toEqual(["cancelled"]);
    const stop = await registry.stop({ signal: AbortSignal.abort() });
    expect(stop.map(({ error }) => error.code)).toEqual(["cancelled"]);
  });

  it("stops every instance once, goes on past one that fails, and forgets them", async () => {
    const stopped: string[] = [];
    const registry = registryOf(
      fake({
        a: { stop: async () => void stopped.push("a") },
        b: { stop: () => Promise.reject(new Error("x")) },
        c: { stop: async () => void stopped.push("c") },
      }),
    );
    for (const id of ["a", "b", "c"]) registry.create(configOf(id));
    expect((await registry.stop(never())).map(({ id }) => id)).toEqual(["b"]);
    expect(await registry.stop(never())).toEqual([]);
    expect(stopped).toEqual(["a", "c"]);
    expect(registry.list()).toEqual([]);
  });
});
