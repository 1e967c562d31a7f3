import type { CatalogNode, CatalogProvider } from "./catalog.ts";
import { Catalog } from "./catalog.ts";
import { isSameNodeConfig } from "./config-delivery.ts";
import type { ModelOptions } from "./edge-options.ts";
import type { NodeStore } from "./node-store.ts";
import type { ProtocolProfile } from "./protocol-profile.ts";
import type { ResourceLedger } from "./resource-ledger.ts";

/** What can be configured anew while an Edge runs. */
export interface ConfigurationSource {
  readonly store: NodeStore;
  readonly profiles: Readonly<Record<string, ProtocolProfile>>;
  readonly models: readonly ModelOptions[];
}

/** What a new configuration changed. */
export interface ReloadResult {
  /** Of the configuration that holds now; 1 is the one that the Edge was made with. */
  readonly revision: number;
  /** Names, in the order of the configuration. */
  readonly nodes: {
    readonly added: readonly string[];
    readonly removed: readonly string[];
    /** Those whose providers are others now, as their Nodes see them. */
    readonly changed: readonly string[];
  };
}

/** The configuration that holds now. */
export class Configuration {
  readonly #ledger: ResourceLedger;
  readonly #bodyBytes: number;
  #store: NodeStore;
  #catalog: Catalog;
  /** What is not configured any more and had work at the last change. */
  #removed: readonly CatalogNode[] = [];

  /** @throws EdgeError `invalid_config`, naming the key. */
  constructor(
    source: ConfigurationSource,
    options: {
      readonly ledger: ResourceLedger;
      /** Longest request body, in bytes; told to Nodes. */
      readonly bodyBytes: number;
    },
  ) {
    this.#ledger = options.ledger;
    this.#bodyBytes = options.bodyBytes;
    this.#store = source.store;
    this.#catalog = this.#put(source, 1);
  }

  get catalog(): Catalog {
    return this.#catalog;
  }

  get store(): NodeStore {
    return this.#store;
  }

  /** What is configured, and what is not any more but still has work. */
  get visible(): readonly CatalogNode[] {
    const { nodes } = this.#catalog;
    const removed = this.#removed.map(busyPart).filter(({ providers }) => providers.length > 0);
    if (removed.length === 0) return nodes;
    const rest = new Map(removed.map((node) => [node.record.name, node]));
    const configured = nodes.map((node) => {
      const more = rest.get(node.record.name);
      rest.delete(node.record.name);
      return more === undefined ? node : { ...node, providers: [...node.providers, ...more.providers] };
    });
    return [...configured, ...rest.values()];
  }

  /**
   * Puts another configuration in the place of this one, in this turn; work that runs is not touched.
   * @throws EdgeError `invalid_config`, naming the key; then nothing has changed.
   */
  replace(source: ConfigurationSource): ReloadResult {
    const before = this.#catalog;
    const shown = this.visible;
    const after = this.#put(source, before.revision + 1);
    this.#catalog = after;
    this.#store = source.store;
    this.#removed = shown.map((node) => removedPart(node, after));
    return {
      revision: after.revision,
      nodes: {
        added: names(after).filter((name) => before.node(name) === undefined),
        removed: names(before).filter((name) => after.node(name) === undefined),
        changed: names(after).filter((name) => isChanged(name, before, after)),
      },
    };
  }

  #put({ store, profiles, models }: ConfigurationSource, revision: number): Catalog {
    const plan = this.#ledger.plan();
    const catalog = new Catalog({
      revision,
      nodes: store.records,
      profiles,
      models,
      bodyBytes: this.#bodyBytes,
      resources: plan,
    });
    plan.commit();
    return catalog;
  }
}

function names({ nodes }: Catalog): string[] {
  return nodes.map(({ record }) => record.name);
}

function isChanged(name: string, before: Catalog, after: Catalog): boolean {
  const [was, is] = [before.node(name), after.node(name)];
  if (was === undefined || is === undefined) return false;
  return !isSameNodeConfig(before.configFor(was.record), after.configFor(is.record));
}

function busyPart({ record, providers }: CatalogNode): CatalogNode {
  return { record, providers: providers.filter(({ resource }) => resource.busy) };
}

function removedPart({ record, providers }: CatalogNode, catalog: Catalog): CatalogNode {
  const configured = new Set(
    catalog.node(record.name)?.providers.map(({ resource }: CatalogProvider) => resource),
  );
  return { record, providers: providers.filter(({ resource }) => !configured.has(resource)) };
}
