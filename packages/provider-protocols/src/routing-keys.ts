import { ProtocolError, type BodyPosition } from "./protocol-error.ts";

/**
 * The keys that routing reads, and which of them a body has used so far.
 *
 * Some providers match keys without regard to letter case and let the last one win (Go's encoding/json,
 * with Unicode's simple folding), so a spelling that differs only in case counts as a repetition: what
 * routing read must be what the provider reads.
 */
export class RoutingKeys {
  /** Longest spelling of a routing key, in bytes: every UTF-16 unit as `\uXXXX`. */
  readonly maxSpellingBytes: number;
  readonly #byFold = new Map<string, string>();
  readonly #seen = new Set<string>();

  constructor(keys: Iterable<string>) {
    let longest = 0;
    for (const key of keys) {
      this.#byFold.set(fold(key), key);
      longest = Math.max(longest, key.length);
    }
    this.maxSpellingBytes = 6 * longest;
  }

  /**
   * The routing key that `key` is, or undefined.
   * @throws ProtocolError `duplicate_key`
   */
  use(key: string, position: () => BodyPosition): string | undefined {
    const folded = fold(key);
    const name = this.#byFold.get(folded);
    if (name === undefined) return undefined;
    if (this.#seen.has(folded)) {
      const at = position();
      throw new ProtocolError(
        "duplicate_key",
        `The key "${name}" is repeated at line ${at.line}, column ${at.column} (byte ${at.offset})`,
        { position: at, key: name },
      );
    }
    this.#seen.add(folded);
    return key === name ? name : undefined;
  }
}

function fold(key: string): string {
  return key.toUpperCase().toLowerCase();
}
