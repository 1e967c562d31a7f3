import type { Catalog } from "../../packages/edge-core/src/catalog.ts";
import { operationPath } from "../../packages/edge-core/src/catalog.ts";
import type { Resource } from "../../packages/edge-core/src/resource.ts";
import type { ProviderShape, Shape } from "../../packages/edge-core/test/pool-world.ts";
import type { Random } from "./random.ts";

/** What every request asks for. */
export const OPERATION = "chat_completions";

/** Lengths of inputs that are asked for; the thresholds lie between them. */
export const INPUT_TOKENS: readonly number[] = [0, 50, 500, 5_000];
const THRESHOLDS: readonly number[] = [10, 100, 1_000];
const NODES: readonly string[] = ["n0", "n1", "n2"];
const PROVIDERS: readonly string[] = ["p0", "p1", "p2"];
export const MODELS: readonly string[] = ["m0", "m1", "m2", "m3", "m4"];

/** Any configuration. */
export function anyShape(random: Random): Shape {
  const nodes = Object.fromEntries(
    random
      .some(NODES)
      .map((node) => [
        node,
        Object.fromEntries(random.some(PROVIDERS).map((provider) => [provider, anyProvider(random)])),
      ]),
  );
  return { nodes, models: anyModels(random, nodes) };
}

/** One that differs from `shape` as a reload would have it: in one thing, or in all. */
export function changed(random: Random, shape: Shape): Shape {
  if (random.once(4)) return anyShape(random);
  if (random.once(2)) return { ...shape, models: anyModels(random, shape.nodes) };
  const node = random.one(Object.keys(shape.nodes));
  const providers = node === undefined ? undefined : shape.nodes[node];
  const provider = providers && random.one(Object.keys(providers));
  if (node === undefined || provider === undefined) return anyShape(random);
  return {
    ...shape,
    nodes: { ...shape.nodes, [node]: { ...providers, [provider]: anyProvider(random) } },
  };
}

function anyProvider(random: Random): ProviderShape {
  const capacity = 1 + random.below(3);
  const thresholdTokens = random.one(THRESHOLDS);
  if (thresholdTokens === undefined || random.once(2)) return capacity;
  return { capacity, long: { capacity: random.below(capacity + 1), thresholdTokens } };
}

function anyModels(random: Random, nodes: Shape["nodes"]): Shape["models"] {
  const all = Object.entries(nodes).flatMap(([node, providers]) =>
    Object.keys(providers).map((provider) => `${node}/${provider}`),
  );
  return Object.fromEntries(
    random
      .some(MODELS)
      .map((model) => [
        model,
        random.some(all).map((name) => (random.once(4) ? `${name}*${1 + random.below(4)}` : name)),
      ]),
  );
}

/** By model, the resources that can serve it. */
export function offersOf({ models }: Catalog): Map<string, ReadonlySet<Resource>> {
  return new Map(
    models.map(({ key, candidates }) => [
      key,
      new Set(
        candidates
          .filter(({ provider }) => operationPath(provider.profile, OPERATION) !== undefined)
          .map(({ provider }) => provider.resource),
      ),
    ]),
  );
}
