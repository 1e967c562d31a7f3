import type { Clock, ProviderStatus, Timer } from "@iop/wire";
import { ProviderHealth } from "@iop/wire";

/** What is known of a provider's health. */
export type ResourceHealth = "ok" | "degraded" | "offline";

/** A place on a resource, held by one request. */
export interface Lease {
  /** Whether it still holds its place: not returned, nor its generation fenced. */
  readonly held: boolean;
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
  /** The lower of that, less the quarantined among them, and the effective capacity; 0 while offline. */
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
  /** It serves as soon as its Node has answered to a changed configuration, which it is about to. */
  readonly awaited: boolean;
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

/** Why a provider gets no new work, whatever its health. */
export interface Hold {
  readonly reason: string;
  /** Its Node is about to answer: who waits for the provider goes on waiting. */
  readonly pending: boolean;
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

/** The one implementation; only the ledger changes it. */
export class ProviderResource implements Resource {
  readonly node: string;
  readonly provider: string;
  configuredCapacity = 0;
  configuredLong = 0;
  longThreshold: number = Number.POSITIVE_INFINITY;
  generation: number | undefined;
  configured = false;
  // Computed where something that they follow from changes: they are read far more often.
  live = false;
  awaited = false;
  effectiveCapacity = 0;
  effectiveLong = 0;
  #enabled = false;
  #health: ResourceHealth = "offline";
  #reason: string | undefined;
  #held: Hold | undefined;
  #reportedCapacity = Number.POSITIVE_INFINITY;
  /** Of both, those that are long are counted again. */
  inFlight = 0;
  inFlightLong = 0;
  quarantined = 0;
  #quarantinedLong = 0;
  /** Leases of an earlier epoch are void. */
  #epoch = 0;
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
    return this.#held?.reason ?? this.#reason;
  }

  get busy(): boolean {
    return this.inFlight > 0 || this.quarantined > 0;
  }

  get saturated(): boolean {
    return this.#saturation !== undefined;
  }

  hasRoom(inputTokens: number): boolean {
    if (this.#saturation !== undefined || this.inFlight >= this.effectiveCapacity) return false;
    return inputTokens < this.longThreshold || this.inFlightLong < this.effectiveLong;
  }

  acquire(inputTokens: number): Lease | undefined {
    if (!this.hasRoom(inputTokens)) return undefined;
    const long = inputTokens >= this.longThreshold;
    this.inFlight++;
    if (long) this.inFlightLong++;
    return new ResourceLease(this, long, this.#epoch);
  }

  #saturate(): void {
    this.#saturation?.cancel();
    this.#saturation = this.#clock.setTimer(() => {
      this.#saturation = undefined;
      this.#room(this);
    }, this.#saturationMs);
    this.#saturationMs = Math.min(LONGEST_SATURATION_MS, 2 * this.#saturationMs);
  }

  release(lease: ResourceLease): void {
    if (!this.holds(lease)) return;
    if (lease.state === "in_flight") this.#leave(lease);
    else {
      this.quarantined--;
      if (lease.long) this.#quarantinedLong--;
      this.#recompute();
    }
    lease.state = "returned";
    this.#unsaturate();
    this.#room(this);
  }

  holds(lease: ResourceLease): boolean {
    return lease.epoch === this.#epoch && lease.state !== "returned";
  }

  /** As `release`, for work that the Node refused: that says nothing of room. */
  refuse(lease: ResourceLease): void {
    if (!this.holds(lease) || lease.state === "quarantined") return;
    this.#leave(lease);
    lease.state = "returned";
    this.#saturate();
    this.#room(this);
  }

  quarantine(lease: ResourceLease): void {
    if (!this.holds(lease) || lease.state === "quarantined") return;
    this.#leave(lease);
    lease.state = "quarantined";
    this.quarantined++;
    if (lease.long) this.#quarantinedLong++;
    this.#recompute();
  }

  #leave({ long }: ResourceLease): void {
    this.inFlight--;
    if (long) this.inFlightLong--;
  }

  #recompute(): void {
    const serves = this.generation !== undefined && !this.#draining && this.health !== "offline";
    this.live = serves && this.#held === undefined;
    this.awaited = serves && this.#held?.pending === true;
    const capacity = Math.min(this.configuredCapacity, this.#reportedCapacity) - this.quarantined;
    this.effectiveCapacity = this.live ? Math.max(0, capacity) : 0;
    const long = Math.min(this.configuredLong - this.#quarantinedLong, this.effectiveCapacity);
    this.effectiveLong = Math.max(0, long);
  }

  #unsaturate(): void {
    this.#saturation?.cancel();
    this.#saturation = undefined;
    this.#saturationMs = FIRST_SATURATION_MS;
  }

  drain(generation: number): void {
    if (this.generation !== generation) return;
    this.#draining = true;
    this.#recompute();
  }

  configure({ capacity, long, enabled }: ResourceOptions): void {
    this.configured = true;
    this.configuredCapacity = capacity;
    this.configuredLong = long?.capacity ?? 0;
    this.longThreshold = long?.thresholdTokens ?? Number.POSITIVE_INFINITY;
    this.#enabled = enabled;
    this.#recompute();
  }

  remove(): void {
    this.configured = false;
    this.configuredCapacity = 0;
    this.configuredLong = 0;
    this.#enabled = false;
    this.#recompute();
  }

  activate(generation: number): void {
    if (this.generation !== undefined) this.fence(this.generation);
    this.generation = generation;
    this.#reason = "the Node has not reported it";
    this.#recompute();
  }

  hold(generation: number, hold: Hold): void {
    if (this.generation === undefined) this.activate(generation);
    if (this.generation !== generation) return;
    this.#held = hold;
    this.#recompute();
  }

  accept(generation: number): void {
    if (this.generation !== generation) return;
    this.#held = undefined;
    this.#recompute();
  }

  report(generation: number, status: ProviderStatus): void {
    if (this.generation !== generation) return;
    this.#health = healthOf(status.health);
    this.#reason =
      this.#health === "ok" || status.reason === "" ? undefined : status.reason.slice(0, MAX_REASON);
    // 0 is what a Node that does not know sends; one that admits nothing says offline.
    this.#reportedCapacity = status.maxConcurrency === 0 ? Number.POSITIVE_INFINITY : status.maxConcurrency;
    this.#recompute();
  }

  fence(generation: number): void {
    if (this.generation !== generation) return;
    this.#epoch++;
    this.inFlight = 0;
    this.inFlightLong = 0;
    this.quarantined = 0;
    this.#quarantinedLong = 0;
    this.#unsaturate();
    this.#draining = false;
    this.generation = undefined;
    this.#health = "offline";
    this.#reason = undefined;
    this.#held = undefined;
    this.#reportedCapacity = Number.POSITIVE_INFINITY;
    this.#recompute();
  }
}

class ResourceLease implements Lease {
  readonly long: boolean;
  readonly epoch: number;
  /** The resource's to change. */
  state: "in_flight" | "quarantined" | "returned" = "in_flight";
  readonly #resource: ProviderResource;

  constructor(resource: ProviderResource, long: boolean, epoch: number) {
    this.#resource = resource;
    this.long = long;
    this.epoch = epoch;
  }

  get held(): boolean {
    return this.#resource.holds(this);
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
