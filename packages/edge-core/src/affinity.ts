/** Sessions that are remembered; the one that was used longest ago is forgotten. */
const MAX_SESSIONS = 10_000;

/** A provider, by its configured names. */
export interface Served {
  readonly nodeId: string;
  readonly providerId: string;
}

/**
 * Which provider served a session last: its key-value cache is warm there. A preference, never more; kept by
 * principal, so that nobody learns of, or lands in, another's sessions.
 */
export class Affinity {
  readonly #last = new Map<string, Served>();

  /** The provider that served this session last. */
  recall(principal: string | undefined, session: string): Served | undefined {
    return this.#last.get(key(principal, session));
  }

  /** `provider` serves this session now. */
  remember(principal: string | undefined, session: string, { nodeId, providerId }: Served): void {
    const name = key(principal, session);
    // Put back at the end: a Map keeps the order of insertion.
    this.#last.delete(name);
    this.#last.set(name, { nodeId, providerId });
    if (this.#last.size <= MAX_SESSIONS) return;
    for (const oldest of this.#last.keys()) {
      this.#last.delete(oldest);
      return;
    }
  }
}

function key(principal: string | undefined, session: string): string {
  return JSON.stringify([principal ?? null, session]);
}
