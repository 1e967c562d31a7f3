import { hash, timingSafeEqual } from "node:crypto";
import { type IncomingMessage, type Server, type ServerResponse, createServer } from "node:http";
import type { EdgeSnapshot } from "@iop/edge-core";
import { isLoopbackHost } from "@iop/reference-host";

export interface AdminOptions {
  readonly snapshot: () => EdgeSnapshot;
  /** SHA-256 of the key that callers present as `authorization: Bearer KEY`, in hexadecimal. Default: none is asked for, which is for loopback only. */
  readonly keySha256?: string | undefined;
}

/**
 * The admin API: `GET /healthz` (the process is up; for everybody) and `GET /api/snapshot`. Without a key
 * it answers only to loopback names in `Host`, and never to a web page of another origin, so that no page
 * in the operator's browser can read it.
 */
export function createAdminServer({ snapshot, keySha256 }: AdminOptions): Server {
  const key = keySha256 === undefined ? undefined : Buffer.from(keySha256, "hex");
  return createServer({ keepAliveTimeout: 75_000 }, (request, response) => {
    const path = (request.url ?? "/").split("?", 1)[0];
    const refusal = refusalOf(request, key, path === "/healthz");
    if (refusal !== undefined) answer(response, refusal.status, { error: refusal.message });
    else if (path === "/healthz") answer(response, 200, { status: "ok" });
    else if (path === "/api/snapshot") answer(response, 200, snapshot());
    else answer(response, 404, { error: "There is /healthz and /api/snapshot." });
  });
}

function refusalOf(
  request: IncomingMessage,
  key: Buffer | undefined,
  isPublic: boolean,
): { readonly status: number; readonly message: string } | undefined {
  const { host, origin, authorization } = request.headers;
  if (key === undefined && !isLoopbackName(host))
    return { status: 403, message: "The Host header must name this machine's loopback." };
  if (origin !== undefined && URL.parse(origin)?.host !== host)
    return { status: 403, message: "Requests of web pages from elsewhere are not served." };
  if (request.method !== "GET" && request.method !== "HEAD")
    return { status: 405, message: "Only GET is served." };
  if (key === undefined || isPublic) return undefined;
  const presented = /^bearer +(\S+) *$/i.exec(authorization ?? "")?.[1] ?? "";
  return timingSafeEqual(hash("sha256", presented, "buffer"), key)
    ? undefined
    : { status: 401, message: "Send the admin key as `Authorization: Bearer KEY`." };
}

function isLoopbackName(host: string | undefined): boolean {
  const url = URL.parse(`http://${host ?? ""}`);
  return url !== null && isLoopbackHost(url.hostname);
}

function answer(response: ServerResponse, status: number, body: unknown): void {
  const text = `${JSON.stringify(body)}\n`;
  response.writeHead(status, {
    "content-type": "application/json",
    "content-length": Buffer.byteLength(text),
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    ...(status === 401 ? { "www-authenticate": 'Bearer realm="iop-admin"' } : {}),
    ...(status === 405 ? { allow: "GET, HEAD" } : {}),
  });
  response.end(response.req.method === "HEAD" ? undefined : text);
}
