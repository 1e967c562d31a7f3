import type { Resource } from "./resource.ts";

/** Up to this many are all compared for one selection. */
const COMPARED = 32;
/** Of more, so many in turn. */
const SAMPLED = 8;

interface Turn {
  readonly resource: Resource;
  before: Turn | undefined;
  after: Turn | undefined;
}

/** The resources of a group that have room: added and removed at the same cost however many there are. */
export class OpenResources {
  readonly #turns = new Map<Resource, Turn>();
  /** That was chosen, or became open, the longest time ago. */
  #first: Turn | undefined;
  #last: Turn | undefined;

  get size(): number {
    return this.#turns.size;
  }

  add(resource: Resource): void {
    if (this.#turns.has(resource)) return;
    const place: Turn = { resource, before: undefined, after: undefined };
    this.#turns.set(resource, place);
    this.#append(place);
  }

  set(resource: Resource, open: boolean): void {
    if (open) this.add(resource);
    else this.#remove(resource);
  }

  /**
   * The resource with the least relative load, (in flight + 1) / (capacity * weight), that has room; among
   * equals the one that was not chosen for the longest time. Exact for up to 32; of more it is the best of 8, which
   * move on with each call. A weight that is not given is 1.
   */
  leastLoaded(inputTokens: number, weights?: ReadonlyMap<Resource, number>): Resource | undefined {
    let best: Turn | undefined;
    let least = Number.POSITIVE_INFINITY;
    let compared = 0;
    let place = this.#first;
    const enough = this.size > COMPARED ? SAMPLED : COMPARED;
    for (; place !== undefined; place = place.after) {
      const { resource } = place;
      compared++;
      if (resource.hasRoom(inputTokens)) {
        const load = (resource.inFlight + 1) / (resource.effectiveCapacity * (weights?.get(resource) ?? 1));
        if (load < least) {
          least = load;
          best = place;
        }
      }
      // Those that have no long place do not count: a free one is found if there is one.
      if (compared >= enough && best !== undefined) break;
    }
    if (best === undefined) return undefined;
    if (place !== undefined) this.#moveBack(place);
    this.#unlink(best);
    this.#append(best);
    return best.resource;
  }

  #remove(resource: Resource): void {
    const place = this.#turns.get(resource);
    if (place === undefined) return;
    this.#turns.delete(resource);
    this.#unlink(place);
  }

  #append(place: Turn): void {
    place.before = this.#last;
    place.after = undefined;
    if (this.#last === undefined) this.#first = place;
    else this.#last.after = place;
    this.#last = place;
  }

  #unlink(place: Turn): void {
    if (place.before === undefined) this.#first = place.after;
    else place.before.after = place.after;
    if (place.after === undefined) this.#last = place.before;
    else place.after.before = place.before;
  }

  /** Puts all up to and with `place` behind the others. */
  #moveBack(place: Turn): void {
    const { after } = place;
    if (after === undefined || this.#first === undefined || this.#last === undefined) return;
    this.#last.after = this.#first;
    this.#first.before = this.#last;
    this.#first = after;
    after.before = undefined;
    this.#last = place;
    place.after = undefined;
  }
}
