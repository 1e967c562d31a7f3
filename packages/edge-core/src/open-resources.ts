import type { Resource } from "./resource.ts";

/** Up to this many are compared for one selection; of more, as many in turn. */
const COMPARED = 32;

/** The resources of a group that have room: added and removed at the same cost however many there are. */
export class OpenResources {
  readonly #list: Resource[] = [];
  readonly #places = new Map<Resource, number>();
  #turn = 0;

  get size(): number {
    return this.#list.length;
  }

  add(resource: Resource): void {
    if (this.#places.has(resource)) return;
    this.#places.set(resource, this.#list.length);
    this.#list.push(resource);
  }

  set(resource: Resource, open: boolean): void {
    if (open) this.add(resource);
    else this.#remove(resource);
  }

  /**
   * The resource with the least relative load, (in flight + 1) / (capacity * weight), that has room; among
   * equals one after the other. Exact for up to 32; of more it is the best of 32, which move on with each call.
   */
  leastLoaded(inputTokens: number, weightOf: (resource: Resource) => number): Resource | undefined {
    const count = this.#list.length;
    if (count === 0) return undefined;
    const start = this.#turn % count;
    let best: Resource | undefined;
    let bestStep = 0;
    let least = Number.POSITIVE_INFINITY;
    for (let step = 0; step < count; step++) {
      const resource = this.#list[(start + step) % count];
      if (resource === undefined || !resource.hasRoom(inputTokens)) continue;
      const load = (resource.inFlight + 1) / (resource.effectiveCapacity * weightOf(resource));
      if (load < least) {
        least = load;
        best = resource;
        bestStep = step;
      }
      // Those that were skipped for want of long capacity do not count: a free one is found if there is one.
      if (step + 1 >= COMPARED && best !== undefined) break;
    }
    if (best !== undefined) this.#turn = start + (count > COMPARED ? COMPARED : bestStep + 1);
    return best;
  }

  #remove(resource: Resource): void {
    const place = this.#places.get(resource);
    if (place === undefined) return;
    this.#places.delete(resource);
    const last = this.#list.pop();
    if (last === undefined || last === resource) return;
    this.#list[place] = last;
    this.#places.set(last, place);
  }
}
