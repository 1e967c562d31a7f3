/** Somebody who waits, as the line sees it. */
export interface Waiting {
  /** Higher goes first. */
  readonly priority: number;
  /** Order of arrival; lower goes first within a priority. Kept by one who comes back. */
  readonly arrival: number;
  /** Has a long input: may have to wait where others do not. */
  readonly long: boolean;
}

interface Place<T extends Waiting> {
  readonly waiting: T;
  readonly list: List<T>;
  before: Place<T> | undefined;
  after: Place<T> | undefined;
}

/** First come, first served; leaving from anywhere costs the same. */
class List<T extends Waiting> {
  first: Place<T> | undefined;
  last: Place<T> | undefined;

  insert(waiting: T): Place<T> {
    // Nearly always the newest; one who comes back is nearly always the oldest.
    let before = this.last;
    if (this.first !== undefined && waiting.arrival < this.first.waiting.arrival) before = undefined;
    else while (before !== undefined && before.waiting.arrival > waiting.arrival) before = before.before;
    const after = before === undefined ? this.first : before.after;
    const place: Place<T> = { waiting, list: this, before, after };
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
  readonly normal: List<T>;
  readonly long: List<T>;
}

/**
 * Who waits for the same providers: by priority, then by arrival. Long requests stand in a list of their own
 * beside the normal ones, so that one that must wait for long capacity holds up long ones only. All costs are
 * independent of how many wait; only the number of priorities counts.
 */
export class WaitingLine<T extends Waiting> {
  /** Highest priority first; few. */
  readonly #levels: Level<T>[] = [];
  readonly #places = new Map<T, Place<T>>();

  get size(): number {
    return this.#places.size;
  }

  /** Puts `waiting` where its priority and arrival belong. */
  add(waiting: T): void {
    const level = this.#level(waiting.priority);
    this.#places.set(waiting, (waiting.long ? level.long : level.normal).insert(waiting));
  }

  /** Takes `waiting` out; false where it does not wait here. */
  remove(waiting: T): boolean {
    const place = this.#places.get(waiting);
    if (place === undefined) return false;
    this.#places.delete(waiting);
    place.list.remove(place);
    return true;
  }

  /** The first that `fits` among the heads of the lists, in the order in which they are to be served. */
  next(fits: (waiting: T) => boolean): T | undefined {
    for (const { normal, long } of this.#levels) {
      const one = normal.first?.waiting;
      const other = long.first?.waiting;
      const [first, second] =
        one !== undefined && other !== undefined && other.arrival < one.arrival ? [other, one] : [one, other];
      if (first !== undefined && fits(first)) return first;
      if (second !== undefined && fits(second)) return second;
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
    const level: Level<T> = { priority, normal: new List(), long: new List() };
    this.#levels.splice(at, 0, level);
    return level;
  }
}

/** Whether `a` is to be served before `b`. */
export function isBefore(a: Waiting, b: Waiting): boolean {
  return a.priority !== b.priority ? a.priority > b.priority : a.arrival < b.arrival;
}
