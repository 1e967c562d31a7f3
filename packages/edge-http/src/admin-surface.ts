import type { IncomingMessage, ServerResponse } from "node:http";
import type { EdgeEvents, EdgeService } from "@iop/edge-core";
import { KeyRing } from "./api-keys.ts";
import { errorEnvelope } from "./error-envelope.ts";
import { EventStreams } from "./event-streams.ts";
import type { HttpSurface } from "./http-surface.ts";
import { HttpSurfaceError } from "./http-surface-error.ts";
import { RebindingGuard } from "./rebinding-guard.ts";
import { unreadyReason } from "./readiness.ts";
import { readStatusPage } from "./status-page.ts";
import { internal } from "./upstream-error.ts";

/** What the admin surface shows. */
export interface AdminEdge extends Pick<EdgeService, "snapshot" | "models"> {
  readonly events: EdgeEvents;
}

/** A scrape's answer. */
export interface MetricsText {
  readonly contentType: string;
  readonly text: string;
}

export interface AdminSurfaceOptions {
  readonly edge: AdminEdge;
  /**
   * SHA-256 of the key that callers present as `authorization: Bearer KEY`, 64 hexadecimal digits. Default:
   * none is asked for, which is for loopback only.
   */
  readonly keySha256?: string | undefined;
  /** Values of `Host` that are served, with or without a port. Default: with a key all, else loopback's names. */
  readonly allowedHosts?: readonly string[] | undefined;
  /** Answers `/metrics`; without it there is none. */
  readonly metrics?: (() => MetricsText | Promise<MetricsText>) | undefined;
  /** True from when the Edge begins to shut down: it is not ready any more. */
  readonly draining?: (() => boolean) | undefined;
  /** Ends the event streams when it fires, so that a server can close. */
  readonly signal?: AbortSignal | undefined;
  /** Readers of `/api/events` at a time; then 503. Default 64. */
  readonly maxSubscribers?: number | undefined;
  /** Unsent bytes that are kept for one of them before it is dropped. Default 256 KiB. */
  readonly subscriberBytes?: number | undefined;
  /** How long a dropped one may take to read what was kept, in milliseconds. Default 10,000. */
  readonly subscriberPatienceMs?: number | undefined;
  /** Between two comments on a silent event stream, in milliseconds. Default 15,000. */
  readonly keepAliveMs?: number | undefined;
}

const LOOPBACK = ["localhost", "127.0.0.1", "[::1]"];

/** Serves one path; `sendsBody` is false for HEAD. */
type Route = (res: ServerResponse, sendsBody: boolean) => void | Promise<void>;

/**
 * What operators see of an Edge, as a request listener: the status page at `/`, `/healthz`, `/readyz`,
 * `/api/snapshot`, `/api/events` (server-sent events) and `/metrics`. With a key everything asks for it but
 * health, readiness and the empty page. Web pages of other origins are refused.
 * @throws HttpSurfaceError `invalid_config`, naming the option
 */
export function createAdminSurface(options: AdminSurfaceOptions): HttpSurface {
  const { edge, keySha256, metrics, draining, signal } = options;
  const keys = new KeyRing(
    keySha256 === undefined ? [] : [{ name: "keySha256", sha256: keySha256, models: [] }],
  );
  const allowedHosts = options.allowedHosts ?? (keySha256 === undefined ? LOOPBACK : undefined);
  const guard = new RebindingGuard({ allowedHosts }, { servesPages: true });
  const page = readStatusPage();
  const streams = new EventStreams({
    events: edge.events,
    maxSubscribers: options.maxSubscribers ?? 64,
    bufferedBytes: options.subscriberBytes ?? 262_144,
    keepAliveMs: options.keepAliveMs ?? 15_000,
    patienceMs: options.subscriberPatienceMs ?? 10_000,
  });
  if (signal?.aborted === true) streams.close();
  else signal?.addEventListener("abort", () => streams.close(), { once: true });

  const open = new Map<string, Route>([
    ["/", (res, sendsBody) => answer(res, 200, page.headers, page.html, sendsBody)],
    ["/healthz", (res, sendsBody) => answerJson(res, 200, { status: "ok" }, sendsBody)],
    [
      "/readyz",
      (res, sendsBody) => {
        const reason = draining?.() === true ? "the Edge is shutting down" : unreadyReason(edge);
        if (reason === undefined) answerJson(res, 200, { status: "ready" }, sendsBody);
        else answerJson(res, 503, { status: "unready", reason }, sendsBody);
      },
    ],
  ]);
  const locked = new Map<string, Route>([
    ["/api/snapshot", (res, sendsBody) => answerJson(res, 200, edge.snapshot(), sendsBody)],
    [
      "/api/events",
      (res, sendsBody) => {
        if (sendsBody) streams.open(res, EVENT_HEADERS);
        else res.writeHead(200, EVENT_HEADERS).end();
      },
    ],
  ]);
  if (metrics !== undefined)
    locked.set("/metrics", async (res, sendsBody) => {
      const { contentType, text } = await metrics();
      answer(res, 200, { "content-type": contentType }, Buffer.from(text), sendsBody);
    });

  /** @throws HttpSurfaceError */
  const serve = (req: IncomingMessage, res: ServerResponse): void | Promise<void> => {
    guard.check(req);
    refuseOtherSites(req);
    const path = (req.url ?? "/").split("?", 1)[0] ?? "";
    const route = open.get(path) ?? locked.get(path);
    if (route === undefined) throw new HttpSurfaceError("not_found", 404, "There is no such endpoint.");
    if (req.method !== "GET" && req.method !== "HEAD")
      throw new HttpSurfaceError("method_not_allowed", 405, "This endpoint takes GET, HEAD only.", {
        headers: { allow: "GET, HEAD" },
      });
    if (!open.has(path)) keys.authenticate(req.headers.authorization);
    return route(res, req.method === "GET");
  };

  return (req, res) => {
    const fail = (error: unknown): void => {
      if (res.headersSent) res.destroy();
      else refuse(res, error instanceof HttpSurfaceError ? error : internal(error), req.method !== "HEAD");
    };
    try {
      serve(req, res)?.catch(fail);
    } catch (error) {
      fail(error);
    }
  };
}

const COMMON = { "cache-control": "no-store", "x-content-type-options": "nosniff" };
const EVENT_HEADERS = { ...COMMON, "content-type": "text/event-stream", "x-accel-buffering": "no" };

/**
 * A page elsewhere can make a browser ask for something without an `Origin`, as for an image: it could not
 * read the answer, but it could take all places of the event streams. A link to the status page is fine.
 */
function refuseOtherSites(req: IncomingMessage): void {
  const site = req.headers["sec-fetch-site"];
  if (site === undefined || site === "same-origin" || site === "none") return;
  if (req.headers["sec-fetch-mode"] === "navigate" && req.headers["sec-fetch-dest"] === "document") return;
  throw new HttpSurfaceError(
    "origin_not_allowed",
    403,
    "Requests of web pages from elsewhere are not served.",
  );
}

function refuse(res: ServerResponse, error: HttpSurfaceError, sendsBody: boolean): void {
  const headers = { ...error.headers, "content-type": "application/json" };
  answer(res, error.status, headers, Buffer.from(`${errorEnvelope(error)}\n`), sendsBody);
}

function answerJson(res: ServerResponse, status: number, body: unknown, sendsBody: boolean): void {
  const headers = { "content-type": "application/json" };
  answer(res, status, headers, Buffer.from(`${JSON.stringify(body)}\n`), sendsBody);
}

function answer(
  res: ServerResponse,
  status: number,
  headers: Readonly<Record<string, string>>,
  body: Buffer,
  sendsBody: boolean,
): void {
  res.writeHead(status, { ...COMMON, ...headers, "content-length": body.length });
  res.end(sendsBody ? body : undefined);
}
