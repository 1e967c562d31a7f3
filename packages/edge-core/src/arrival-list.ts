/** A place in a list; good until it is taken out. */
export interface Place<T> {
  readonly item: T;
  before: Place<T> | undefined;
  after: Place<T> | undefined;
  /** Whether it has been taken out. */
  left: boolean;
}

/** In order of arrival; leaving from anywhere costs the same. */
export class ArrivalList<T extends { readonly arrival: number }> {
  first: Place<T> | undefined;
  last: Place<T> | undefined;

  insert(item: T): Place<T> {
    // Nearly always the newest; one who comes back is among the oldest: looked for from both ends.
    let before = this.last;
    let after = this.first;
    for (;;) {
      if (before === undefined || before.item.arrival < item.arrival) {
        after = before === undefined ? this.first : before.after;
        break;
      }
      if (after === undefined || after.item.arrival > item.arrival) {
        before = after === undefined ? this.last : after.before;
        break;
      }
      before = before.before;
      after = after.after;
    }
    const place: Place<T> = { item, before, after, left: false };
    if (before === undefined) this.first = place;
    else before.after = place;
    if (after === undefined) this.last = place;
    else after.before = place;
    return place;
  }

  remove(place: Place<T>): void {
    if (place.left) return;
    place.left = true;
    if (place.before === undefined) this.first = place.after;
    else place.before.after = place.after;
    if (place.after === undefined) this.last = place.before;
    else place.after.before = place.before;
  }
}
