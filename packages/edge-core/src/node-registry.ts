import type { Clock, ProviderStatus, Session } from "@iop/wire";

import type { EventBus, NodeEvent } from "./event-bus.ts";
import type { ResourceLedger } from "./resource-ledger.ts";
import type { Hold } from "./resource.ts";

/** A connection's claim to be a node. Teardowns compare this object, never a name or an id. */
export interface Owner {
  readonly node: string;
  /** Drawn by the Node's process. */
  readonly instanceId: string;
  /** Increases over all nodes and is never reused; never on the wire (spec rule 2). */
  readonly generation: number;
  readonly session: Session;
  /** A pending owner has its configuration; only a ready one exists for anybody else (spec rule 1). */
  readonly state: "pending" | "ready";
  /** The Node wants nothing new. */
  readonly draining: boolean;
  /** Milliseconds since the epoch; while ready. */
  readonly readySince: number | undefined;
  /** The newest configuration that the Node is known to run; 0 before it is ready. */
  readonly configRevision: number;
}

type MutableOwner = { -readonly [K in keyof Owner]: Owner[K] };

/** Who each node is now: the only writer of ownership. */
export class NodeRegistry {
  readonly #owners = new Map<string, MutableOwner>();
  /** Who has challenged the owner, by node. */
  readonly #challengers = new Map<string, Session>();
  readonly #ledger: ResourceLedger;
  readonly #events: EventBus;
  readonly #clock: Clock;
  #generation = 0;

  constructor(options: {
    readonly ledger: ResourceLedger;
    readonly events: EventBus;
    readonly clock: Clock;
  }) {
    this.#ledger = options.ledger;
    this.#events = options.events;
    this.#clock = options.clock;
  }

  /** The owner of `node`, pending or ready. */
  owner(node: string): Owner | undefined {
    return this.#owners.get(node);
  }

  /** The owner of `node` once it is ready. */
  ready(node: string): Owner | undefined {
    const owner = this.#owners.get(node);
    return owner?.state === "ready" ? owner : undefined;
  }

  /** The owner of `node` if it may be sent new work. */
  dispatchable(node: string): Owner | undefined {
    const owner = this.#owners.get(node);
    return owner?.state === "ready" && !owner.draining ? owner : undefined;
  }

  /** Whether this very claim holds. */
  isCurrent(owner: Owner): boolean {
    return this.#owners.get(owner.node) === owner;
  }

  /**
   * Reserves `node` for `session` while its owner is probed: nobody else may claim or challenge until this one
   * claims or withdraws, or the owner is superseded. False where another challenge is under way.
   */
  challenge(node: string, session: Session): boolean {
    if (this.#challengers.has(node)) return false;
    this.#challengers.set(node, session);
    return true;
  }

  /** Ends the challenge of `session`, if it is the one under way. */
  withdraw(node: string, session: Session): void {
    if (this.#challengers.get(node) === session) this.#challengers.delete(node);
  }

  /** Claims pending ownership; undefined where the node has an owner, or another session has challenged it. */
  claim(node: string, instanceId: string, session: Session): Owner | undefined {
    if (this.#owners.has(node)) return undefined;
    const challenger = this.#challengers.get(node);
    if (challenger !== undefined && challenger !== session) return undefined;
    this.#challengers.delete(node);
    const owner: MutableOwner = {
      node,
      instanceId,
      session,
      generation: ++this.#generation,
      state: "pending",
      draining: false,
      readySince: undefined,
      configRevision: 0,
    };
    this.#owners.set(node, owner);
    return owner;
  }

  /**
   * Makes the current pending owner ready: its resources come online, but for the providers of `held`, then
   * the event. False where it is not that.
   */
  activate(claim: Owner, statuses: readonly ProviderStatus[], held?: ReadonlyMap<string, Hold>): boolean {
    const owner = this.#current(claim);
    if (owner === undefined || owner.state !== "pending") return false;
    owner.state = "ready";
    owner.readySince = this.#clock.wallNow();
    this.#ledger.activate(owner.node, owner.generation, statuses, held);
    this.emit({ node: owner.node, type: "connected" });
    return true;
  }

  /** The Node runs this configuration. */
  configured(claim: Owner, revision: number): void {
    const owner = this.#current(claim);
    if (owner !== undefined) owner.configRevision = revision;
  }

  /** Sends the owner nothing new from here on. */
  drain(claim: Owner): void {
    const owner = this.#current(claim);
    if (owner === undefined) return;
    owner.draining = true;
    this.#ledger.drain(owner.node, owner.generation);
  }

  /**
   * The end of an ownership (spec rule 3): the generation's leases return and its resources go
   * offline, then the event. Nothing where the claim does not hold any more.
   */
  disconnect(claim: Owner, code: string, reason: string): void {
    const owner = this.#current(claim);
    if (owner === undefined) return;
    this.#owners.delete(owner.node);
    this.#ledger.fence(owner.node, owner.generation);
    if (owner.state === "ready") this.emit({ node: owner.node, type: "disconnected", code, reason });
    else this.emit({ node: owner.node, type: "refused", code: "not_ready", reason: `${code}: ${reason}` });
  }

  /**
   * Ends an ownership for the sake of the claim that follows at once; a challenge is thereby decided. The
   * connection itself is the caller's to close.
   */
  supersede(claim: Owner, reason: string): void {
    this.#challengers.delete(claim.node);
    this.disconnect(claim, "superseded", reason);
  }

  /** Tells the subscribers of something that happened to a node now. */
  emit(event: Omit<NodeEvent, "at">): void {
    this.#events.emit("node", { ...event, at: new Date(this.#clock.wallNow()).toISOString() });
  }

  #current(claim: Owner): MutableOwner | undefined {
    const owner = this.#owners.get(claim.node);
    return owner === claim ? owner : undefined;
  }
}
