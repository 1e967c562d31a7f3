import type { IncomingMessage } from "node:http";
import { type ApiKey, KeyRing } from "./api-keys.ts";
import { RebindingGuard, type RebindingGuardOptions } from "./rebinding-guard.ts";

/** Who may use a surface, and by which names it is known. */
export interface AccessRules extends RebindingGuardOptions {
  /** Who may ask, and for which models. Empty: everybody for all, which is for loopback only. */
  readonly apiKeys: readonly ApiKey[];
}

/** The rules of one or more surfaces, which their host can replace while they serve. */
export class HttpAccess {
  #keys: KeyRing;
  #guard: RebindingGuard;

  /** @throws HttpSurfaceError `invalid_config` */
  constructor(rules: AccessRules) {
    this.#keys = new KeyRing(rules.apiKeys);
    this.#guard = new RebindingGuard(rules);
  }

  /**
   * From the next request on `rules` hold; those that run keep what they were allowed.
   * @throws HttpSurfaceError `invalid_config`; then nothing has changed.
   */
  replace(rules: AccessRules): void {
    const keys = new KeyRing(rules.apiKeys);
    this.#guard = new RebindingGuard(rules);
    this.#keys = keys;
  }

  /** @throws HttpSurfaceError `missing_host`, `host_not_allowed`, `origin_not_allowed` */
  check(req: IncomingMessage): void {
    this.#guard.check(req);
  }

  /**
   * The key that a request presents; undefined where none is configured.
   * @throws HttpSurfaceError `invalid_api_key`
   */
  authenticate(req: IncomingMessage): ApiKey | undefined {
    return this.#keys.authenticate(req.headers.authorization);
  }
}
