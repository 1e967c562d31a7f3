/** Operations that are told with a failure. */
const TOLD = 60;

/** What must hold does not. */
export class SimulationFailure extends Error {
  override readonly name = "SimulationFailure";
}

/** What happened, for a look at whether a simulation reaches what it should. */
export type Tally = Readonly<Record<string, number>>;

/** What has happened so far: the last of it word for word, all of it in numbers. */
export class Trace {
  readonly #last: string[] = [];
  readonly #counts = new Map<string, number>();

  get tally(): Tally {
    return Object.fromEntries(this.#counts);
  }

  did(what: string): void {
    this.#last.push(what);
    if (this.#last.length > TOLD) this.#last.shift();
  }

  count(what: string): void {
    this.#counts.set(what, (this.#counts.get(what) ?? 0) + 1);
  }

  /** @throws SimulationFailure with what led to it */
  fail(what: string): never {
    throw new SimulationFailure(`${what}; the last of what happened:\n  ${this.#last.join("\n  ")}`);
  }
}
