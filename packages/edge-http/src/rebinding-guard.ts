import type { IncomingMessage } from "node:http";
import { HttpSurfaceError } from "./http-surface-error.ts";

/** Names and origins that the surface answers to. */
export interface RebindingGuardOptions {
  /** Values of `Host` that are served: a name or address for any port (`localhost`, `[::1]`), or one with its port. Absent: all. */
  readonly allowedHosts?: readonly string[] | undefined;
  /** Values of `Origin` that are served, like `https://app.example`; a request without the header always is. */
  readonly allowedOrigins?: readonly string[] | undefined;
}

/**
 * Checks `Host` and `Origin`, so that a web page in the operator's browser cannot drive a listener on
 * loopback: neither with a name of its own that resolves to 127.0.0.1 (DNS rebinding), nor across sites.
 */
export class RebindingGuard {
  readonly #hosts: ReadonlySet<string> | undefined;
  readonly #origins: ReadonlySet<string>;
  readonly #servesPages: boolean;

  /** `servesPages`: pages of the surface itself may call it, too. */
  constructor(options: RebindingGuardOptions, { servesPages = false }: { servesPages?: boolean } = {}) {
    this.#servesPages = servesPages;
    this.#hosts = options.allowedHosts && new Set(options.allowedHosts.map(normalHost));
    this.#origins = new Set(options.allowedOrigins?.map((origin) => origin.toLowerCase()));
  }

  /** @throws HttpSurfaceError `missing_host`, `host_not_allowed`, `origin_not_allowed` */
  check(req: IncomingMessage): void {
    const { host, origin } = req.headers;
    if (host === undefined && (this.#hosts !== undefined || req.httpVersion !== "1.0"))
      throw new HttpSurfaceError("missing_host", 400, "The request has no Host header.");
    if (host !== undefined && this.#hosts !== undefined) {
      const value = host.toLowerCase();
      if (!this.#hosts.has(value) && !this.#hosts.has(withoutPort(value)))
        throw new HttpSurfaceError("host_not_allowed", 403, "This server is not known by the given Host.");
    }
    if (origin === undefined || this.#origins.has(origin.toLowerCase())) return;
    if (!this.#servesPages || host === undefined || URL.parse(origin)?.host !== host.toLowerCase())
      throw new HttpSurfaceError(
        "origin_not_allowed",
        403,
        "Requests from the given Origin are not allowed.",
      );
  }
}

function withoutPort(host: string): string {
  const colon = host.lastIndexOf(":");
  return colon > host.lastIndexOf("]") ? host.slice(0, colon) : host;
}

/** A bare IPv6 address as `Host` spells it. */
function normalHost(host: string): string {
  const value = host.toLowerCase();
  return !value.startsWith("[") && value.indexOf(":") !== value.lastIndexOf(":") ? `[${value}]` : value;
}
