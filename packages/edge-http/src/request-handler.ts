import type { IncomingMessage, ServerResponse } from "node:http";
import { BufferedBytes } from "./buffered-bytes.ts";
import { Exchange } from "./exchange.ts";
import { HttpAccess } from "./http-access.ts";
import { HttpSurfaceError } from "./http-surface-error.ts";
import type { HttpSurfaceOptions } from "./http-surface-options.ts";
import { ModelsRoute } from "./models-route.ts";
import { joinPipeline } from "./pipeline.ts";
import { serveTunnel } from "./tunnel-route.ts";
import { internal } from "./upstream-error.ts";

/** Requests of one connection that may wait for the one before them; each holds its body. */
const MAX_PIPELINED = 4;
const MODELS = "/v1/models";

/** Serves one request; `awaitsContinue`: its client sends the body only after `100 Continue`. */
export type RequestHandler = (req: IncomingMessage, res: ServerResponse, awaitsContinue: boolean) => Exchange;

/** @throws HttpSurfaceError `invalid_config` */
export function createRequestHandler(options: HttpSurfaceOptions): RequestHandler {
  const { edge, onRequest } = options;
  const limits = {
    bodyBytes: positive("bodyBytes", options.bodyBytes ?? 33_554_432),
    buffered: new BufferedBytes(
      positive("bufferedRequestBytes", options.bufferedRequestBytes ?? 536_870_912),
    ),
  };
  const settings = {
    slowConsumerMs: positive("slowConsumerMs", options.slowConsumerMs ?? 30_000),
    attributionHeaders: options.attributionHeaders ?? true,
    onRequest,
  };
  const access = options.access instanceof HttpAccess ? options.access : new HttpAccess(options.access);
  const models = new ModelsRoute(edge);
  const tunnelSettings = { edge, limits };

  /** @throws HttpSurfaceError */
  const serve = (exchange: Exchange): Promise<void> | undefined => {
    const { req, res } = exchange;
    if (res.socket === null && joinPipeline(exchange) > MAX_PIPELINED)
      throw new HttpSurfaceError("too_many_pipelined", 429, "Too many requests wait on this connection.", {
        headers: { "retry-after": "1" },
      });
    if (req.headers.expect !== undefined && !awaitsContinueOnly(req.headers.expect))
      throw new HttpSurfaceError("expectation_failed", 417, "The given Expect is not supported.", {
        closesConnection: true,
      });
    access.check(req);
    const path = pathOf(req);
    const authenticate = (): void => {
      exchange.key = access.authenticate(req);
    };
    if (path === "/v1/chat/completions") {
      exchange.operation = "chat_completions";
      allow(req, "POST");
      authenticate();
      return serveTunnel(exchange, "chat_completions", tunnelSettings);
    }
    if (path !== MODELS && !path.startsWith(`${MODELS}/`))
      throw new HttpSurfaceError("not_found", 404, "There is no such endpoint.");
    exchange.operation = "models";
    allow(req, "GET", "HEAD");
    authenticate();
    exchange.reply(
      path === MODELS ? models.list(exchange.key) : models.get(path.slice(MODELS.length + 1), exchange.key),
    );
    return undefined;
  };

  return (req, res, awaitsContinue) => {
    const exchange = new Exchange(req, res, awaitsContinue, settings);
    const fail = (error: unknown): void =>
      exchange.refuse(error instanceof HttpSurfaceError ? error : internal(error));
    try {
      serve(exchange)?.catch(fail);
    } catch (error) {
      fail(error);
    }
    return exchange;
  };
}

function awaitsContinueOnly(expect: string): boolean {
  return /^\s*100-continue\s*$/i.test(expect);
}

function pathOf(req: IncomingMessage): string {
  const url = req.url ?? "";
  const query = url.indexOf("?");
  return query < 0 ? url : url.slice(0, query);
}

function allow(req: IncomingMessage, ...methods: readonly string[]): void {
  if (req.method !== undefined && methods.includes(req.method)) return;
  const allowed = methods.join(", ");
  throw new HttpSurfaceError("method_not_allowed", 405, `This endpoint takes ${allowed} only.`, {
    headers: { allow: allowed },
  });
}

function positive(name: string, value: number): number {
  if (Number.isSafeInteger(value) && value > 0) return value;
  throw new HttpSurfaceError("invalid_config", 500, `${name} must be a positive whole number`);
}
