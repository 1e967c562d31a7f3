import { create } from "@bufbuild/protobuf";
import type { Clock, ProviderStatus } from "@iop/wire";
import { ProviderHealth, ProviderStatusSchema } from "@iop/wire";

import { Catalog } from "../src/catalog.ts";
import { EdgeError } from "../src/edge-error.ts";
import type { AdmissionRequest, Grant, QueueSettings, Ticket } from "../src/admission.ts";
import { Pool } from "../src/pool.ts";
import { ResourceLedger } from "../src/resource-ledger.ts";
import type { Resource } from "../src/resource.ts";
import { nodeRecord, provider } from "./edge-world.ts";

/** A provider's capacity, or more of it. */
export type ProviderShape =
  | number
  | {
      readonly capacity: number;
      readonly long?: { readonly capacity: number; readonly thresholdTokens: number };
    };

/** A configuration in short. */
export interface Shape {
  /** By node, then provider. */
  readonly nodes: Readonly<Record<string, Readonly<Record<string, ProviderShape>>>>;
  /** By model: `node/provider`, or `node/provider*weight`. */
  readonly models: Readonly<Record<string, readonly string[]>>;
}

/** A pool over a ledger, without connections: nodes come and go by a call. */
export class PoolWorld {
  readonly ledger: ResourceLedger;
  readonly pool: Pool;
  catalog: Catalog;
  readonly #generations = new Map<string, number>();
  #generation = 0;

  constructor(clock: Clock, shape: Shape, settings: Partial<QueueSettings> = {}) {
    this.ledger = new ResourceLedger(clock);
    this.catalog = this.#put(shape);
    this.pool = new Pool({
      clock,
      catalog: this.catalog,
      settings: { timeoutMs: 60_000, maxWaiting: 1_000, offlineGraceMs: 0, ...settings },
    });
    this.ledger.watch(this.pool);
  }

  /** The resource of `node/provider`. */
  resource(name: string): Resource {
    const [node = "", id] = name.split("/");
    const found = this.catalog.node(node)?.providers.find(({ record }) => record.id === id);
    if (found === undefined) throw new Error(`no ${name}`);
    return found.resource;
  }

  /** `node` is ready, all of its providers healthy. */
  online(...nodes: readonly string[]): void {
    for (const node of nodes) {
      this.offline(node);
      const generation = ++this.#generation;
      this.#generations.set(node, generation);
      const ids = this.catalog.node(node)?.providers.map(({ record }) => record.id) ?? [];
      this.ledger.activate(
        node,
        generation,
        ids.map((id) => status(id)),
      );
    }
  }

  /** `node` is lost. */
  offline(node: string): void {
    const generation = this.#generations.get(node);
    if (generation !== undefined) this.ledger.fence(node, generation);
    this.#generations.delete(node);
  }

  /** Undefined while it is offline. */
  generation(node: string): number | undefined {
    return this.#generations.get(node);
  }

  drain(node: string): void {
    this.ledger.drain(node, this.#generations.get(node) ?? 0);
  }

  report(name: string, health: ProviderHealth, maxConcurrency = 0): void {
    const [node = "", id = ""] = name.split("/");
    this.ledger.report(node, this.#generations.get(node) ?? 0, status(id, health, maxConcurrency));
  }

  /** Another configuration; `apply` is what the Edge does between the ledger's part and the pool's. */
  reload(shape: Shape, apply: () => void = () => {}): void {
    this.catalog = this.#put(shape);
    this.pool.reconfigure(this.catalog, apply);
  }

  /** Asks for a place; settles in promise jobs only. */
  ask(model: string, options: Partial<AdmissionRequest> = {}, ticket: Ticket = this.pool.ticket()): Asked {
    return new Asked(this.pool, ticket, {
      model,
      operation: "chat_completions",
      priority: 0,
      inputTokens: 0,
      preferred: undefined,
      signal: undefined,
      ...options,
    });
  }

  #put({ nodes, models }: Shape): Catalog {
    const plan = this.ledger.plan();
    const catalog = new Catalog({
      revision: 1,
      nodes: Object.entries(nodes).map(([name, providers]) =>
        nodeRecord(
          name,
          name,
          Object.entries(providers).map(([id, shape]) =>
            provider(id, typeof shape === "number" ? { capacity: shape } : shape),
          ),
        ),
      ),
      profiles: {},
      models: Object.entries(models).map(([key, candidates]) => ({
        key,
        candidates: candidates.map((text) => {
          const [name = "", weight = "1"] = text.split("*");
          const [node = "", id = ""] = name.split("/");
          return { node, provider: id, target: `${key}@${id}`, weight: Number(weight) };
        }),
      })),
      bodyBytes: 1_000,
      resources: plan,
    });
    plan.commit();
    return catalog;
  }
}

/** What became of one request for a place. */
export class Asked {
  readonly ticket: Ticket;
  readonly settled: Promise<void>;
  grant: Grant | undefined;
  error: unknown;

  constructor(pool: Pool, ticket: Ticket, request: AdmissionRequest) {
    this.ticket = ticket;
    this.settled = pool.acquire(request, ticket).then(
      (grant) => {
        this.grant = grant;
      },
      (error: unknown) => {
        this.error = error;
      },
    );
  }

  /** `waits`, the provider as `node/provider`, or the code of its error. */
  get state(): string {
    if (this.grant !== undefined) {
      const { nodeId, providerId } = this.grant.candidate.dispatch;
      return `${nodeId}/${providerId}`;
    }
    if (this.error === undefined) return "waits";
    return EdgeError.is(this.error) ? this.error.code : "another error";
  }

  release(): void {
    if (this.grant === undefined) throw new Error("it has no place");
    this.grant.lease.release();
  }
}

function status(id: string, health: ProviderHealth = ProviderHealth.OK, maxConcurrency = 0): ProviderStatus {
  return create(ProviderStatusSchema, { id, health, maxConcurrency });
}
