import type { Lease, Resource } from "../../packages/edge-core/src/resource.ts";
import { INPUT_TOKENS } from "./shapes.ts";

/** A place that was given out. */
export interface Given {
  readonly resource: Resource;
  readonly lease: Lease;
  /** By the threshold of its time. */
  readonly long: boolean;
  readonly generation: number | undefined;
  /** Whether the resource had room for each of `INPUT_TOKENS` just before. */
  readonly room: readonly boolean[];
}

interface Count {
  readonly given: Given;
  state: "held" | "quarantined";
}

/** Keeps the books of all places beside the ledger, and compares. */
export class LedgerAudit {
  readonly #watched = new Map<Resource, Resource["acquire"]>();
  readonly #counts = new Map<Lease, Count>();
  readonly #violated: (what: string) => never;
  /** What was given out since the last look, in order. */
  given: Given[] = [];

  constructor(violated: (what: string) => never) {
    this.#violated = violated;
  }

  /** From here on `resource` gives nothing out unseen. */
  watch(resource: Resource): void {
    if (this.#watched.has(resource)) return;
    const acquire = resource.acquire.bind(resource);
    this.#watched.set(resource, acquire);
    resource.acquire = (inputTokens) => {
      const room = INPUT_TOKENS.map((tokens) => resource.hasRoom(tokens));
      const { inFlight, effectiveCapacity, live, generation, saturated, configuredLong } = resource;
      const lease = acquire(inputTokens);
      if (lease === undefined) return undefined;
      if (!live || generation === undefined) this.#violated(`${nameOf(resource)} gave a place while offline`);
      if (inFlight >= effectiveCapacity)
        this.#violated(`${nameOf(resource)} gave a place over its capacity of ${effectiveCapacity}`);
      if (saturated) this.#violated(`${nameOf(resource)} gave a place while saturated`);
      const long = inputTokens >= resource.longThreshold;
      if (long && this.#count(resource, ({ given }) => given.long) >= configuredLong)
        this.#violated(`${nameOf(resource)} gave a long place over its ${configuredLong}`);
      const given = { resource, lease, long, generation, room };
      this.#counts.set(lease, { given, state: "held" });
      this.given.push(given);
      return lease;
    };
  }

  release(lease: Lease): void {
    this.#counts.delete(lease);
    lease.release();
  }

  refuse(lease: Lease): void {
    if (this.#counts.get(lease)?.state === "held") this.#counts.delete(lease);
    lease.refused();
  }

  quarantine(lease: Lease): void {
    const count = this.#counts.get(lease);
    if (count !== undefined) count.state = "quarantined";
    lease.quarantine();
  }

  /** All places of `node` are about to return; said before, so that what is granted then is not among them. */
  fence(node: string): void {
    for (const [lease, { given }] of this.#counts)
      if (given.resource.node === node) this.#counts.delete(lease);
  }

  /** The ledger's counts are those of the places that are out. */
  compare(): void {
    for (const [lease, { given }] of this.#counts) {
      if (!lease.held) this.#violated(`a place of ${nameOf(given.resource)} is not held any more`);
      if (given.generation !== given.resource.generation)
        this.#violated(`a place of ${nameOf(given.resource)} is of a connection that is gone`);
    }
    for (const resource of this.#watched.keys()) {
      const held = this.#count(resource, ({ state }) => state === "held");
      const long = this.#count(resource, ({ given, state }) => given.long && state === "held");
      const quarantined = this.#count(resource, ({ state }) => state === "quarantined");
      const is = [resource.inFlight, resource.inFlightLong, resource.quarantined].join(", ");
      const expected = [held, long, quarantined].join(", ");
      if (is !== expected)
        this.#violated(
          `${nameOf(resource)} counts ${is} (in flight, long, quarantined); out are ${expected}`,
        );
      if (resource.effectiveCapacity < 0 || resource.effectiveLong < 0)
        this.#violated(`${nameOf(resource)} has a capacity below 0`);
    }
  }

  #count(resource: Resource, which: (count: Count) => boolean): number {
    let found = 0;
    for (const count of this.#counts.values()) if (count.given.resource === resource && which(count)) found++;
    return found;
  }

  /** Places that are out. */
  get out(): number {
    return this.#counts.size;
  }
}

export function nameOf({ node, provider }: Resource): string {
  return `${node}/${provider}`;
}
