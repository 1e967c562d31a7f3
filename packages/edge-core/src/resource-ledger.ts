import type { ProviderStatus } from "@iop/wire";
import { ProviderHealth } from "@iop/wire";

/** What is known of a provider's health. */
export type ResourceHealth = "ok" | "degraded" | "offline";

/** A place on a resource, held by one request. */
export interface Lease {
  /** Gives the place back. Idempotent, and nothing once the generation is fenced. */
  release(): void;
  /** Gives the place back, but lowers the capacity by one until `release`: the provider may still be busy. */
  quarantine(): void;
}

/** One provider of one node: the place where all uses of it count, whichever model asked (spec F13). */
export interface Resource {
  readonly node: string;
  readonly provider: string;
  readonly configuredCapacity: number;
  /** The lower of the configured and the reported capacity, less the quarantined; 0 while offline. */
  readonly effectiveCapacity: number;
  readonly inFlight: number;
  readonly quarantined: number;
  /** Generation of the connection that brought it online; undefined while offline. */
  readonly generation: number | undefined;
  readonly health: ResourceHealth;
  /** Why the health is not `ok`, for people. */
  readonly reason: string | undefined;
  /** Whether it serves at all, full or not. */
  readonly live: boolean;
  /** A lease if it is live and has room. */
  acquire(): Lease | undefined;
}

/** Longest reason of a Node that is kept, in characters. */
const MAX_REASON = 256;

/** The counts of all providers; leases are given and taken back nowhere else. */
export class ResourceLedger {
  readonly #nodes = new Map<string, Map<string, ProviderResource>>();

  /** Adds a resource, offline; one that is not enabled stays that. */
  add(
    node: string,
    provider: string,
    options: { readonly capacity: number; readonly enabled: boolean },
  ): Resource {
    const resource = new ProviderResource(node, provider, options.capacity);
    if (!options.enabled) return resource;
    const ofNode = this.#nodes.get(node);
    if (ofNode === undefined) this.#nodes.set(node, new Map([[provider, resource]]));
    else ofNode.set(provider, resource);
    return resource;
  }

  /** Brings all resources of `node` online for `generation`; one without a status stays unhealthy. */
  activate(node: string, generation: number, statuses: readonly ProviderStatus[]): void {
    for (const resource of this.#nodes.get(node)?.values() ?? []) resource.activate(generation);
    for (const status of statuses) this.report(node, generation, status);
  }

  /** Takes in what a Node says of a provider; ignored for another generation or an unknown provider. */
  report(node: string, generation: number, status: ProviderStatus): void {
    this.#nodes.get(node)?.get(status.id)?.report(generation, status);
  }

  /** Returns every lease of `generation` on `node` and takes its resources offline. Idempotent. */
  fence(node: string, generation: number): void {
    for (const resource of this.#nodes.get(node)?.values() ?? []) resource.fence(generation);
  }
}

class ProviderResource implements Resource {
  readonly node: string;
  readonly provider: string;
  readonly configuredCapacity: number;
  generation: number | undefined;
  health: ResourceHealth = "offline";
  reason: string | undefined;
  #reportedCapacity = Number.POSITIVE_INFINITY;
  // The counts are the sizes of these sets, so a lease that is in neither changes nothing.
  readonly #inFlight = new Set<Lease>();
  readonly #quarantined = new Set<Lease>();

  constructor(node: string, provider: string, capacity: number) {
    this.node = node;
    this.provider = provider;
    this.configuredCapacity = capacity;
  }

  get inFlight(): number {
    return this.#inFlight.size;
  }

  get quarantined(): number {
    return this.#quarantined.size;
  }

  get live(): boolean {
    return this.generation !== undefined && this.health !== "offline";
  }

  get effectiveCapacity(): number {
    if (!this.live) return 0;
    return Math.max(0, Math.min(this.configuredCapacity, this.#reportedCapacity) - this.#quarantined.size);
  }

  acquire(): Lease | undefined {
    if (this.#inFlight.size >= this.effectiveCapacity) return undefined;
    const lease = new ResourceLease(this.#inFlight, this.#quarantined);
    this.#inFlight.add(lease);
    return lease;
  }

  activate(generation: number): void {
    if (this.generation !== undefined) this.fence(this.generation);
    this.generation = generation;
    this.health = "offline";
    this.reason = "the Node has not reported it";
    this.#reportedCapacity = Number.POSITIVE_INFINITY;
  }

  report(generation: number, status: ProviderStatus): void {
    if (this.generation !== generation) return;
    this.health = healthOf(status.health);
    this.reason =
      this.health === "ok" || status.reason === "" ? undefined : status.reason.slice(0, MAX_REASON);
    // 0 is what a Node that does not know sends; one that admits nothing says offline.
    this.#reportedCapacity = status.maxConcurrency === 0 ? Number.POSITIVE_INFINITY : status.maxConcurrency;
  }

  fence(generation: number): void {
    if (this.generation !== generation) return;
    this.#inFlight.clear();
    this.#quarantined.clear();
    this.generation = undefined;
    this.health = "offline";
    this.reason = undefined;
  }
}

class ResourceLease implements Lease {
  readonly #inFlight: Set<Lease>;
  readonly #quarantined: Set<Lease>;

  constructor(inFlight: Set<Lease>, quarantined: Set<Lease>) {
    this.#inFlight = inFlight;
    this.#quarantined = quarantined;
  }

  release(): void {
    if (!this.#inFlight.delete(this)) this.#quarantined.delete(this);
  }

  quarantine(): void {
    if (this.#inFlight.delete(this)) this.#quarantined.add(this);
  }
}

function healthOf(health: ProviderHealth): ResourceHealth {
  switch (health) {
    case ProviderHealth.OK:
      return "ok";
    case ProviderHealth.DEGRADED:
      return "degraded";
    default:
      return "offline";
  }
}
