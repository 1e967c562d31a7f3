/** A place in a gate, held until it is released. */
export interface CapacityPermit extends Disposable {
  /** Gives the place back. Idempotent. */
  release(): void;
}

/**
 * Bounds how much work of one provider instance runs at once, runs and tunnels together, so that work which
 * bypasses the Edge's admission cannot exceed what the backend takes (spec F16). It never queues: a full
 * gate refuses, and whoever asked decides what comes of it.
 */
export class CapacityGate {
  #limit: number;
  readonly #held = new Set<CapacityPermit>();
  readonly #waits = new Set<Wait>();

  /** @throws RangeError unless `limit` is a positive integer. */
  constructor(limit: number) {
    this.#limit = checkLimit(limit);
  }

  /** Permits that may be out at once. */
  get limit(): number {
    return this.#limit;
  }

  /** Permits that are out. Above `limit` only where the limit was lowered under running work. */
  get inFlight(): number {
    return this.#held.size;
  }

  /** A permit, or undefined where the gate is full. */
  tryAcquire(): CapacityPermit | undefined {
    if (this.#held.size >= this.#limit) return undefined;
    const release = (): void => {
      this.#held.delete(permit);
      for (const wait of this.#waits) {
        wait.permits.delete(permit);
        if (wait.permits.size > 0) continue;
        this.#waits.delete(wait);
        wait.over();
      }
    };
    const permit: CapacityPermit = { release, [Symbol.dispose]: release };
    this.#held.add(permit);
    return permit;
  }

  /** Resolves as soon as none of the permits is out any more that are out now; those given out later do not count. */
  async idle(): Promise<void> {
    if (this.#held.size === 0) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#waits.add({ permits: new Set(this.#held), over: resolve });
    await promise;
  }

  /**
   * Takes effect for the next permit; those that are out stay valid.
   * @throws RangeError unless `limit` is a positive integer.
   */
  setLimit(limit: number): void {
    this.#limit = checkLimit(limit);
  }
}

/** Somebody waits for these permits. */
interface Wait {
  readonly permits: Set<CapacityPermit>;
  readonly over: () => void;
}

function checkLimit(limit: number): number {
  if (!Number.isSafeInteger(limit) || limit < 1)
    throw new RangeError(`the limit must be a positive integer, not ${limit}`);
  return limit;
}
