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
  /** Why it is not live or its health is not `ok`, for people. */
  readonly reason: string | undefined;
  /** Whether it serves at all, full or not. */
  readonly live: boolean;
  /** Whether any work is on it. */
  readonly busy: boolean;
  /** Whether it is part of the configuration; otherwise it is only there until its work is over. */
  readonly configured: boolean;
  /** A lease if it is live and has room. */
  acquire(): Lease | undefined;
}

/** Longest reason of a Node that is kept, in characters. */
const MAX_REASON = 256;

/** How a provider is configured, as far as its capacity goes. */
export interface ResourceOptions {
  readonly capacity: number;
  /** One that is not enabled gets no work. */
  readonly enabled: boolean;
}

/** What a ledger is to become; nothing of it holds before `commit`. */
export interface LedgerPlan {
  /** The resource of this provider: the one that the ledger has, with its work, else a new one, offline. */
  add(node: string, provider: string, options: ResourceOptions): Resource;
  /** Makes it hold, in this turn: what was not added gets no new work from here on. */
  commit(): void;
}

/** The counts of all providers; leases are given and taken back nowhere else. */
export class ResourceLedger {
  readonly #nodes = new Map<string, Map<string, ProviderResource>>();

  /** Begins a new configuration. Plans that are not committed leave nothing behind. */
  plan(): LedgerPlan {
    const planned = new Map<ProviderResource, ResourceOptions>();
    return {
      add: (node, provider, options) => {
        const resource = this.#nodes.get(node)?.get(provider) ?? new ProviderResource(node, provider);
        planned.set(resource, options);
        return resource;
      },
      commit: () => this.#commit(planned),
    };
  }

  /**
   * Brings all resources of `node` online for `generation`; one without a status stays unhealthy. To those of
   * `held`, provider to reason, happens what `hold` does, before anybody can be granted one.
   */
  activate(
    node: string,
    generation: number,
    statuses: readonly ProviderStatus[],
    held: ReadonlyMap<string, string> = new Map(),
  ): void {
    const ofNode = this.#nodes.get(node);
    for (const resource of ofNode?.values() ?? []) if (resource.configured) resource.activate(generation);
    for (const [provider, reason] of held) ofNode?.get(provider)?.hold(generation, reason);
    for (const status of statuses) this.report(node, generation, status);
  }

  /** Keeps new work from a provider until `accept`, also from one that has only now been configured; running work goes on. */
  hold(node: string, generation: number, provider: string, reason: string): void {
    this.#nodes.get(node)?.get(provider)?.hold(generation, reason);
  }

  /** Forgets what is neither configured nor one of `running`, which the Node runs, and has no work. */
  forget(node: string, running: ReadonlySet<string>): void {
    for (const [provider, resource] of this.#nodes.get(node) ?? [])
      if (!resource.configured && !resource.busy && !running.has(provider))
        this.#nodes.get(node)?.delete(provider);
  }

  /** Ends a `hold`. */
  accept(node: string, generation: number, provider: string): void {
    this.#nodes.get(node)?.get(provider)?.accept(generation);
  }

  /** Takes in what a Node says of a provider; ignored for another generation or an unknown provider. */
  report(node: string, generation: number, status: ProviderStatus): void {
    this.#nodes.get(node)?.get(status.id)?.report(generation, status);
  }

  /** Returns every lease of `generation` on `node` and takes its resources offline. Idempotent. */
  fence(node: string, generation: number): void {
    for (const resource of this.#nodes.get(node)?.values() ?? []) resource.fence(generation);
    this.#forgetOffline(node);
  }

  // One whose node is connected may be configured again before the Node has heard that it was not: its work and
  // its health then count on.
  #forgetOffline(node: string): void {
    const ofNode = this.#nodes.get(node);
    for (const [provider, resource] of ofNode ?? [])
      if (!resource.configured && resource.generation === undefined) ofNode?.delete(provider);
    if (ofNode?.size === 0) this.#nodes.delete(node);
  }

  #commit(planned: ReadonlyMap<ProviderResource, ResourceOptions>): void {
    for (const [node, resources] of this.#nodes) {
      for (const resource of resources.values()) if (!planned.has(resource)) resource.remove();
      this.#forgetOffline(node);
    }
    for (const [resource, options] of planned) {
      resource.configure(options);
      const ofNode = this.#nodes.get(resource.node);
      if (ofNode === undefined) this.#nodes.set(resource.node, new Map([[resource.provider, resource]]));
      else ofNode.set(resource.provider, resource);
    }
  }
}

class ProviderResource implements Resource {
  readonly node: string;
  readonly provider: string;
  configuredCapacity = 0;
  generation: number | undefined;
  configured = false;
  #enabled = false;
  #health: ResourceHealth = "offline";
  #reason: string | undefined;
  /** Why it gets no new work, whatever its health. */
  #held: string | undefined;
  #reportedCapacity = Number.POSITIVE_INFINITY;
  // The counts are the sizes of these sets, so a lease that is in neither changes nothing.
  readonly #inFlight = new Set<Lease>();
  readonly #quarantined = new Set<Lease>();

  constructor(node: string, provider: string) {
    this.node = node;
    this.provider = provider;
  }

  get health(): ResourceHealth {
    return this.#enabled ? this.#health : "offline";
  }

  get reason(): string | undefined {
    return this.#held ?? this.#reason;
  }

  get busy(): boolean {
    return this.#inFlight.size > 0 || this.#quarantined.size > 0;
  }

  get inFlight(): number {
    return this.#inFlight.size;
  }

  get quarantined(): number {
    return this.#quarantined.size;
  }

  get live(): boolean {
    return this.generation !== undefined && this.#held === undefined && this.health !== "offline";
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

  configure({ capacity, enabled }: ResourceOptions): void {
    this.configured = true;
    this.configuredCapacity = capacity;
    this.#enabled = enabled;
  }

  remove(): void {
    this.configured = false;
    this.configuredCapacity = 0;
    this.#enabled = false;
  }

  activate(generation: number): void {
    if (this.generation !== undefined) this.fence(this.generation);
    this.generation = generation;
    this.#reason = "the Node has not reported it";
  }

  hold(generation: number, reason: string): void {
    if (this.generation === undefined) this.activate(generation);
    if (this.generation === generation) this.#held = reason;
  }

  accept(generation: number): void {
    if (this.generation === generation) this.#held = undefined;
  }

  report(generation: number, status: ProviderStatus): void {
    if (this.generation !== generation) return;
    this.#health = healthOf(status.health);
    this.#reason =
      this.#health === "ok" || status.reason === "" ? undefined : status.reason.slice(0, MAX_REASON);
    // 0 is what a Node that does not know sends; one that admits nothing says offline.
    this.#reportedCapacity = status.maxConcurrency === 0 ? Number.POSITIVE_INFINITY : status.maxConcurrency;
  }

  fence(generation: number): void {
    if (this.generation !== generation) return;
    this.#inFlight.clear();
    this.#quarantined.clear();
    this.generation = undefined;
    this.#health = "offline";
    this.#reason = undefined;
    this.#held = undefined;
    this.#reportedCapacity = Number.POSITIVE_INFINITY;
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
