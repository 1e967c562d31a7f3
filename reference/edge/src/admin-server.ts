import { type Server, createServer } from "node:http";
import { type AdminSurfaceOptions, createAdminSurface } from "@iop/edge-http";

/** Longer than the 60 s that common proxies reuse an idle connection for. */
const KEEP_ALIVE_MS = 75_000;

export interface AdminServerOptions extends Omit<AdminSurfaceOptions, "allowedHosts"> {
  /** Where it will listen: one of the names that it is known by. */
  readonly host: string;
}

/** The admin surface on a server of its own, not listening yet. */
export function createAdminServer({ host, ...options }: AdminServerOptions): Server {
  // With a key, which a page elsewhere does not have, every name is fine.
  const allowedHosts =
    options.keySha256 === undefined ? ["localhost", "127.0.0.1", "[::1]", host] : undefined;
  return createServer({ keepAliveTimeout: KEEP_ALIVE_MS }, createAdminSurface({ ...options, allowedHosts }));
}
