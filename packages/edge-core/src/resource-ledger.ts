import type { Clock, ProviderStatus, Timer } from "@iop/wire";
import { ProviderHealth } from "@iop/wire";

/** What is known of a provider's health. */
export type ResourceHealth = "ok" | "degraded" | "offline";

/** A place on a resource, held by one request. */
export interface Lease {
  /** Gives the place back. Idempotent, and nothing once the generation is fenced. */
  release(): void;
  /**
   * Gives the place back: the Node refused the work, although the Edge thought that there was room. The
   * resource then counts as full until work of it ends, or for a short while.
   */
  refused(): void;
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
  /** Of the capacity, what requests with a long input may use at most; 0 where no input counts as long. */
  readonly configuredLong: number;
  /** The lower of that and the effective capacity; 0 while offline. */
  readonly effectiveLong: number;
  /** All requests on it, long ones included. */
  readonly inFlight: number;
  readonly inFlightLong: number;
  readonly quarantined: number;
  /** Generation of the connection that brought it online; undefined while offline. */
  readonly generation: number | undefined;
  readonly health: ResourceHealth;
  /** Why it is not live or its health is not `ok`, for people. */
  readonly reason: string | undefined;
  /** Whether it serves at all, full or not. */
  readonly live: boolean;
  /** Whether its Node refused work lately, so that it counts as full whatever its capacity. */
  readonly saturated: boolean;
  /** Whether any work is on it. */
  readonly busy: boolean;
  /** Whether it is part of the configuration; otherwise it is only there until its work is over. */
  readonly configured: boolean;
  /** Input tokens from which on a request needs long capacity as well. */
  readonly longThreshold: number;
  /** Whether `acquire` would give a lease. */
  hasRoom(inputTokens: number): boolean;
  /** A lease if it is live and has room for a request with so long an input. */
  acquire(inputTokens: number): Lease | undefined;
}

/** Longest reason of a Node that is kept, in characters. */
const MAX_REASON = 256;

/** Told of every change that matters to those who wait for providers, in the turn of the change. */
export interface LedgerWatcher {
  /** `resource` may have room that it had not. */
  room(resource: Resource): void;
  /** The resources have changed together: room, health or configuration, to the better or the worse. */
  changed(resources: Iterable<Resource>): void;
}

/** First pause after a refusal, in milliseconds; doubled with each that follows, up to the longest. */
const FIRST_SATURATION_MS = 100;
const LONGEST_SATURATION_MS = 5_000;

/** How a provider is configured, as far as its capacity goes. */
export interface ResourceOptions {
  readonly capacity: number;
  /** Bounds the requests among them that have an input of so many tokens or more; absent: all may. */
  readonly long?: { readonly capacity: number; readonly thresholdTokens: number } | undefined;
  /** One that is not enabled gets no work. */
  readonly enabled: boolean;
}

/** What a ledger is to become; nothing of it holds before `commit`. */
export interface LedgerPlan {
  /** The resource of this provider: the one that the ledger has, with its work, else a new one, offline. */
  add(node: string, provider: string, options: ResourceOptions): Resource;
  /** Makes it hold, in this turn: what was not added gets no new work from here on and goes once its work is over. */
  commit(): void;
}

/** The counts of all providers; leases are given and taken back nowhere else. */
export class ResourceLedger {
  readonly #nodes = new Map<string, Map<string, ProviderResource>>();
  readonly #clock: Clock;
  #watcher: LedgerWatcher = { room: () => {}, changed: () => {} };

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** From here on `watcher` is told; there is one. */
  watch(watcher: LedgerWatcher): void {
    this.#watcher = watcher;
  }

  /** Begins a new configuration. Plans that are not committed leave nothing behind. */
  plan(): LedgerPlan {
    const planned = new Map<ProviderResource, ResourceOptions>();
    return {
      add: (node, provider, options) => {
        const resource = this.#nodes.get(node)?.get(provider) ?? this.#create(node, provider);
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
    for (const resource of ofNode?.values() ?? []) resource.activate(generation);
    for (const [provider, reason] of held) ofNode?.get(provider)?.hold(generation, reason);
    for (const status of statuses) ofNode?.get(status.id)?.report(generation, status);
    this.#watcher.changed(ofNode?.values() ?? []);
  }

  /** Sends `node` nothing new from here on, until its next generation. */
  drain(node: string, generation: number): void {
    const ofNode = this.#nodes.get(node);
    for (const resource of ofNode?.values() ?? []) resource.drain(generation);
    this.#watcher.changed(ofNode?.values() ?? []);
  }

  /** Keeps new work from a provider until `accept`, also from one that has only now been configured; running work goes on. */
  hold(node: string, generation: number, provider: string, reason: string): void {
    const resource = this.#nodes.get(node)?.get(provider);
    resource?.hold(generation, reason);
    this.#tell(resource);
  }

  /** Ends a `hold`. */
  accept(node: string, generation: number, provider: string): void {
    const resource = this.#nodes.get(node)?.get(provider);
    resource?.accept(generation);
    this.#tell(resource);
  }

  /** Takes in what a Node says of a provider; ignored for another generation or an unknown provider. */
  report(node: string, generation: number, status: ProviderStatus): void {
    const resource = this.#nodes.get(node)?.get(status.id);
    resource?.report(generation, status);
    this.#tell(resource);
  }

  /**
   * Returns every lease of `generation` on `node` and takes its resources offline, all of them before anybody is
   * told (spec rule 3). Idempotent.
   */
  fence(node: string, generation: number): void {
    const ofNode = this.#nodes.get(node);
    for (const resource of ofNode?.values() ?? []) resource.fence(generation);
    this.#watcher.changed(ofNode?.values() ?? []);
  }

  #create(node: string, provider: string): ProviderResource {
    return new ProviderResource(node, provider, this.#clock, (resource) => this.#watcher.room(resource));
  }

  #tell(resource: ProviderResource | undefined): void {
    if (resource !== undefined) this.#watcher.changed([resource]);
  }

  #commit(planned: ReadonlyMap<ProviderResource, ResourceOptions>): void {
    for (const [node, resources] of this.#nodes) {
      for (const [provider, resource] of resources) {
        if (planned.has(resource)) continue;
        resource.remove();
        // One that still has work is found again if its name comes back before that is over.
        if (!resource.busy) resources.delete(provider);
      }
      if (resources.size === 0) this.#nodes.delete(node);
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
  configuredLong = 0;
  longThreshold = Number.POSITIVE_INFINITY;
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
  readonly #long = new Set<Lease>();
  readonly #quarantined = new Set<Lease>();
  readonly #clock: Clock;
  readonly #room: (resource: Resource) => void;
  #draining = false;
  #saturation: Timer | undefined;
  #saturationMs = FIRST_SATURATION_MS;

  constructor(node: string, provider: string, clock: Clock, room: (resource: Resource) => void) {
    this.node = node;
    this.provider = provider;
    this.#clock = clock;
    this.#room = room;
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

  get inFlightLong(): number {
    return this.#long.size;
  }

  get quarantined(): number {
    return this.#quarantined.size;
  }

  get live(): boolean {
    return (
      this.generation !== undefined &&
      !this.#draining &&
      this.#held === undefined &&
      this.health !== "offline"
    );
  }

  get saturated(): boolean {
    return this.#saturation !== undefined;
  }

  get effectiveLong(): number {
    return Math.min(this.configuredLong, this.effectiveCapacity);
  }

  get effectiveCapacity(): number {
    if (!this.live) return 0;
    return Math.max(0, Math.min(this.configuredCapacity, this.#reportedCapacity) - this.#quarantined.size);
  }

  hasRoom(inputTokens: number): boolean {
    if (this.#saturation !== undefined || this.#inFlight.size >= this.effectiveCapacity) return false;
    return inputTokens < this.longThreshold || this.#long.size < this.effectiveLong;
  }

  acquire(inputTokens: number): Lease | undefined {
    if (!this.hasRoom(inputTokens)) return undefined;
    const lease = new ResourceLease(this);
    this.#inFlight.add(lease);
    if (inputTokens >= this.longThreshold) this.#long.add(lease);
    return lease;
  }

  #saturate(): void {
    this.#saturation?.cancel();
    this.#saturation = this.#clock.setTimer(() => {
      this.#saturation = undefined;
      this.#room(this);
    }, this.#saturationMs);
    this.#saturationMs = Math.min(LONGEST_SATURATION_MS, 2 * this.#saturationMs);
  }

  release(lease: Lease): void {
    if (this.#inFlight.delete(lease)) this.#long.delete(lease);
    else if (!this.#quarantined.delete(lease)) return;
    this.#unsaturate();
    this.#room(this);
  }

  /** As `release`, for work that the Node refused: that says nothing of room. */
  refuse(lease: Lease): void {
    if (!this.#inFlight.delete(lease)) return;
    this.#long.delete(lease);
    this.#saturate();
  }

  quarantine(lease: Lease): void {
    if (!this.#inFlight.delete(lease)) return;
    this.#long.delete(lease);
    this.#quarantined.add(lease);
  }

  #unsaturate(): void {
    this.#saturation?.cancel();
    this.#saturation = undefined;
    this.#saturationMs = FIRST_SATURATION_MS;
  }

  drain(generation: number): void {
    if (this.generation === generation) this.#draining = true;
  }

  configure({ capacity, long, enabled }: ResourceOptions): void {
    this.configured = true;
    this.configuredCapacity = capacity;
    this.configuredLong = long?.capacity ?? 0;
    this.longThreshold = long?.thresholdTokens ?? Number.POSITIVE_INFINITY;
    this.#enabled = enabled;
  }

  remove(): void {
    this.configured = false;
    this.configuredCapacity = 0;
    this.configuredLong = 0;
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
    this.#long.clear();
    this.#quarantined.clear();
    this.#unsaturate();
    this.#draining = false;
    this.generation = undefined;
    this.#health = "offline";
    this.#reason = undefined;
    this.#held = undefined;
    this.#reportedCapacity = Number.POSITIVE_INFINITY;
  }
}

class ResourceLease implements Lease {
  readonly #resource: ProviderResource;

  constructor(resource: ProviderResource) {
    this.#resource = resource;
  }

  release(): void {
    this.#resource.release(this);
  }

  refused(): void {
    this.#resource.refuse(this);
  }

  quarantine(): void {
    this.#resource.quarantine(this);
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
