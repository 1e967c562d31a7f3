import { hash, timingSafeEqual } from "node:crypto";
import { HttpSurfaceError } from "./http-surface-error.ts";
import { matchesGlob } from "./model-glob.ts";

/** A caller's key, as its hash. */
export interface ApiKey {
  /** For logs and attribution; unique. */
  readonly name: string;
  /** SHA-256 of the key, 64 hexadecimal digits. */
  readonly sha256: string;
  /** Models that the key may use, with `*` for any run of characters. */
  readonly models: readonly string[];
  /** Of its requests among those that wait; higher goes first. Default 0. */
  readonly priority?: number | undefined;
}

interface StoredKey {
  readonly key: ApiKey;
  readonly digest: Buffer;
}

const BEARER = /^bearer +([^ ]+) *$/i;

/** The configured API keys. With none configured everybody may use everything. */
export class KeyRing {
  readonly #keys: readonly StoredKey[];

  /** @throws HttpSurfaceError `invalid_config` */
  constructor(keys: readonly ApiKey[]) {
    const names = new Set<string>();
    const digests = new Set<string>();
    this.#keys = keys.map((key) => {
      const sha256 = key.sha256.toLowerCase();
      if (!/^[0-9a-f]{64}$/.test(sha256))
        throw invalid(`apiKeys: sha256 of "${key.name}" is not 64 hexadecimal digits`);
      if (names.has(key.name)) throw invalid(`apiKeys: "${key.name}" is there twice`);
      if (digests.has(sha256)) throw invalid(`apiKeys: "${key.name}" has the key of another entry`);
      if (key.priority !== undefined && !Number.isSafeInteger(key.priority))
        throw invalid(`apiKeys: priority of "${key.name}" is not a whole number`);
      names.add(key.name);
      digests.add(sha256);
      return { key, digest: Buffer.from(sha256, "hex") };
    });
  }

  /**
   * The key that an `authorization` header presents; undefined where none is configured. Every key is
   * compared, in constant time, so that the time says neither which one nor how much of it matched.
   * @throws HttpSurfaceError `invalid_api_key`
   */
  authenticate(authorization: string | undefined): ApiKey | undefined {
    if (this.#keys.length === 0) return undefined;
    const token = BEARER.exec(authorization ?? "")?.[1];
    if (token === undefined)
      throw unauthorized("You did not provide an API key. Send it as `Authorization: Bearer KEY`.");
    const presented = hash("sha256", token, "buffer");
    let found: ApiKey | undefined;
    for (const { key, digest } of this.#keys) if (timingSafeEqual(digest, presented)) found = key;
    if (found === undefined) throw unauthorized("Incorrect API key provided.");
    return found;
  }
}

/** True if `key` may use `model`; undefined is the caller of a surface without keys. */
export function mayUse(key: ApiKey | undefined, model: string): boolean {
  return key === undefined || key.models.some((glob) => matchesGlob(glob, model));
}

function unauthorized(message: string): HttpSurfaceError {
  return new HttpSurfaceError("invalid_api_key", 401, message, {
    headers: { "www-authenticate": 'Bearer realm="iop"' },
  });
}

function invalid(message: string): HttpSurfaceError {
  return new HttpSurfaceError("invalid_config", 500, message);
}
