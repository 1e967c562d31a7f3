/** Somebody who waits, as the line sees it. */
export interface Waiting {
  /** Higher goes first. */
  readonly priority: number;
  /** Order of arrival; lower goes first within a priority. Kept by one who comes back. */
  readonly arrival: number;
  /** How demanding, from 0; small. Of two that demand the same, a provider can take both or neither. */
  readonly demand: number;
}

interface Place<T extends Waiting> {
  readonly waiting: T;
  readonly level: Level<T>;
  readonly list: List<T>;
  before: Place<T> | undefined;
  after: Place<T> | undefined;
}

/** First come, first served; leaving from anywhere costs the same. */
class List<T extends Waiting> {
  first: Place<T> | undefined;
  last: Place<T> | undefined;

  insert(waiting: T, level: Level<T>): Place<T> {
    // Nearly always the newest; one who comes back is among the oldest: looked for from both ends.
    let before = this.last;
    let after = this.first;
    for (;;) {
      if (before === undefined || before.waiting.arrival < waiting.arrival) {
        after = before === undefined ? this.first : before.after;
        break;
      }
      if (after === undefined || after.waiting.arrival > waiting.arrival) {
        before = after === undefined ? this.last : after.before;
        break;
      }
      before = before.before;
      after = after.after;
    }
    const place: Place<T> = { waiting, level, list: this, before, after };
    if (before === undefined) this.first = place;
    else before.after = place;
    if (after === undefined) this.last = place;
    else after.before = place;
    return place;
  }

  remove(place: Place<T>): void {
    if (place.before === undefined) this.first = place.after;
    else place.before.after = place.after;
    if (place.after === undefined) this.last = place.before;
    else place.after.before = place.before;
  }
}

interface Level<T extends Waiting> {
  readonly priority: number;
  count: number;
  /** By demand. */
  readonly lists: List<T>[];
}

/**
 * Who waits for the same providers: by priority, then by arrival. Those who demand more stand in lists of their
 * own, so that one that must wait for long capacity holds up its like only. All costs are independent of how many
 * wait; only the number of priorities and of demands counts.
 */
export class WaitingLine<T extends Waiting> {
  /** Highest priority first; few, none of them empty. */
  readonly #levels: Level<T>[] = [];
  readonly #places = new Map<T, Place<T>>();

  get size(): number {
    return this.#places.size;
  }

  /** How many there are of `priority` or a higher one. */
  upTo(priority: number): number {
    let count = 0;
    for (const level of this.#levels) {
      if (level.priority < priority) break;
      count += level.count;
    }
    return count;
  }

  /** Puts `waiting` where its priority and arrival belong. */
  add(waiting: T): void {
    const level = this.#level(waiting.priority);
    while (level.lists.length <= waiting.demand) level.lists.push(new List());
    const list = level.lists[waiting.demand];
    if (list === undefined) throw new RangeError(`demand ${waiting.demand} is not an integer from 0`);
    this.#places.set(waiting, list.insert(waiting, level));
    level.count++;
  }

  /** Takes `waiting` out; false where it does not wait here. */
  remove(waiting: T): boolean {
    const place = this.#places.get(waiting);
    if (place === undefined) return false;
    this.#places.delete(waiting);
    place.list.remove(place);
    place.level.count--;
    if (place.level.count === 0) this.#levels.splice(this.#levels.indexOf(place.level), 1);
    return true;
  }

  /** Who is to be served first of those that `fits`; whom it does not fit, it fits nobody who demands the same. */
  next(fits: (waiting: T) => boolean): T | undefined {
    for (const { lists } of this.#levels) {
      let next: T | undefined;
      for (const { first } of lists) {
        if (first === undefined || (next !== undefined && next.arrival < first.waiting.arrival)) continue;
        if (fits(first.waiting)) next = first.waiting;
      }
      if (next !== undefined) return next;
    }
    return undefined;
  }

  /** All of them, in no particular order. */
  all(): Iterable<T> {
    return this.#places.keys();
  }

  #level(priority: number): Level<T> {
    let at = 0;
    for (; at < this.#levels.length; at++) {
      const level = this.#levels[at];
      if (level === undefined || level.priority < priority) break;
      if (level.priority === priority) return level;
    }
    const level: Level<T> = { priority, count: 0, lists: [] };
    this.#levels.splice(at, 0, level);
    return level;
  }
}

/** Whether `a` is to be served before `b`. */
export function isBefore(a: Waiting, b: Waiting): boolean {
  return a.priority !== b.priority ? a.priority > b.priority : a.arrival < b.arrival;
}
