import type { IncomingMessage, ServerResponse } from "node:http";
import type { HttpSurfaceOptions } from "./http-surface-options.ts";
import { createRequestHandler } from "./request-handler.ts";

/** A Node request listener. */
export type HttpSurface = (req: IncomingMessage, res: ServerResponse) => void;

/**
 * An OpenAI-compatible surface over an Edge: `POST /v1/chat/completions`, `GET /v1/models` and
 * `GET /v1/models/{id}`. It mounts wherever Node's own request and response are at hand and the body
 * has not been read; `createHttpServer` is it with a server that suits it.
 * @throws HttpSurfaceError `invalid_config`, naming the option
 */
export function createHttpSurface(options: HttpSurfaceOptions): HttpSurface {
  const handle = createRequestHandler(options);
  return (req, res) => {
    handle(req, res, false);
  };
}
