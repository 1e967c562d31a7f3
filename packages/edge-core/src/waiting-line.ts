import type { Place } from "./arrival-list.ts";
import { ArrivalList } from "./arrival-list.ts";

/** Somebody who waits, as the line sees it. */
export interface Waiting {
  /** Higher goes first. */
  readonly priority: number;
  /** Order of arrival; lower goes first within a priority. Kept by one who comes back. */
  readonly arrival: number;
  /** How demanding, from 0; small. Of two that demand the same, a provider can take both or neither. */
  readonly demand: number;
}

/** Those of one priority. */
interface Level<T extends Waiting> {
  readonly priority: number;
  count: number;
  /** By demand. */
  readonly lists: ArrivalList<T>[];
}

/**
 * Who waits for the same providers: by priority, then by arrival. Those who demand more stand in lists of their
 * own, so that one that must wait for long capacity holds up its like only. All costs are independent of how many
 * wait; only the number of priorities and of demands counts.
 */
export class WaitingLine<T extends Waiting> {
  /** Highest priority first; few, none of them empty. */
  readonly #levels: Level<T>[] = [];
  #size = 0;

  get size(): number {
    return this.#size;
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

  /** Puts `waiting` where its priority and arrival belong; its demand is not to change before it is taken out. */
  add(waiting: T): Place<T> {
    const level = this.#level(waiting.priority);
    while (level.lists.length <= waiting.demand) level.lists.push(new ArrivalList());
    const place = listOf(level, waiting).insert(waiting);
    this.#size++;
    level.count++;
    return place;
  }

  /** Takes out who stands there; false where that has been done. */
  remove(place: Place<T>): boolean {
    if (place.left) return false;
    const level = this.#level(place.item.priority);
    listOf(level, place.item).remove(place);
    this.#size--;
    level.count--;
    if (level.count === 0) this.#levels.splice(this.#levels.indexOf(level), 1);
    return true;
  }

  /**
   * Who is to be served first of those that `fits`, or `best` where nobody here comes before it. Whom it does not
   * fit, it fits nobody who demands the same.
   */
  next(fits: (waiting: T) => boolean, best?: T): T | undefined {
    for (const { priority, lists } of this.#levels) {
      if (best !== undefined && best.priority > priority) return best;
      let next = best?.priority === priority ? best : undefined;
      for (const { first } of lists) {
        if (first === undefined || (next !== undefined && next.arrival < first.item.arrival)) continue;
        if (fits(first.item)) next = first.item;
      }
      if (next !== undefined) return next;
    }
    return best;
  }

  /** All of them, in no particular order; each may be taken out when it comes. */
  *all(): Iterable<T> {
    // A level goes with the last of its own.
    for (const { lists } of this.#levels.slice())
      for (const { first } of lists)
        for (let place = first; place !== undefined;) {
          const { item, after } = place;
          yield item;
          place = after;
        }
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

function listOf<T extends Waiting>({ lists }: Level<T>, { demand }: T): ArrivalList<T> {
  const list = lists[demand];
  if (list === undefined) throw new RangeError(`demand ${demand} is not a small whole number`);
  return list;
}
