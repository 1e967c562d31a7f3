import { type IncomingMessage, type Server, type ServerResponse, createServer } from "node:http";
import { isLoopbackHost } from "@iop/reference-host";

export interface MetricsServerOptions {
  /** Where it will listen. On loopback it answers only to loopback's names: no page can reach it by a name of its own. */
  readonly host: string;
  readonly connected: () => boolean;
  readonly metrics: () => Promise<{ readonly contentType: string; readonly text: string }>;
}

/** `GET /metrics` and `GET /healthz` (the process is up) of a Node, not listening yet. Nothing in them is a secret. */
export function createMetricsServer({ host, connected, metrics }: MetricsServerOptions): Server {
  const isLocal = isLoopbackHost(host);
  const serve = async (req: IncomingMessage, res: ServerResponse): Promise<void> => {
    const path = (req.url ?? "/").split("?", 1)[0];
    if (isLocal && !isLoopbackName(req.headers.host))
      answerJson(res, 403, { error: "The Host header must name this machine's loopback." });
    else if (path !== "/metrics" && path !== "/healthz")
      answerJson(res, 404, { error: "There is /metrics and /healthz." });
    else if (req.method !== "GET" && req.method !== "HEAD")
      answerJson(res, 405, { error: "Only GET is served." }, { allow: "GET, HEAD" });
    else if (path === "/healthz") answerJson(res, 200, { status: "ok", connected: connected() });
    else {
      const { contentType, text } = await metrics();
      answer(res, 200, text, { "content-type": contentType });
    }
  };
  return createServer((req, res) => {
    serve(req, res).catch(() => {
      if (res.headersSent) res.destroy();
      else answerJson(res, 500, { error: "Internal error." });
    });
  });
}

function isLoopbackName(host: string | undefined): boolean {
  const url = URL.parse(`http://${host ?? ""}`);
  return url !== null && isLoopbackHost(url.hostname);
}

function answerJson(
  res: ServerResponse,
  status: number,
  body: unknown,
  headers: Readonly<Record<string, string>> = {},
): void {
  answer(res, status, `${JSON.stringify(body)}\n`, { ...headers, "content-type": "application/json" });
}

function answer(
  res: ServerResponse,
  status: number,
  text: string,
  headers: Readonly<Record<string, string>>,
): void {
  res.writeHead(status, {
    ...headers,
    "content-length": Buffer.byteLength(text),
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
  });
  res.end(res.req.method === "HEAD" ? undefined : text);
}
