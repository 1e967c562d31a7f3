import {
  createServer,
  type IncomingMessage,
  type Server,
  type ServerResponse,
  STATUS_CODES,
} from "node:http";
import type { Socket } from "node:net";
import { errorEnvelope } from "./error-envelope.ts";
import { latestExchange } from "./exchange.ts";
import { HttpSurfaceError } from "./http-surface-error.ts";
import type { HttpSurfaceOptions } from "./http-surface-options.ts";
import { createRequestHandler } from "./request-handler.ts";

/** Longer than the 60 s that common load balancers reuse an idle connection for, so that they close it and not we. */
const KEEP_ALIVE_MS = 75_000;
/** For a request's head. */
const HEADERS_MS = 60_000;
/** For a whole request, head and body. A response may take as long as it will. */
const REQUEST_MS = 300_000;

/**
 * A server, not listening yet, with `createHttpSurface` on it: refuses a request by its head before the
 * body is sent (`Expect: 100-continue`), and answers in JSON where Node would with an empty body.
 * @throws HttpSurfaceError `invalid_config`, naming the option
 */
export function createHttpServer(options: HttpSurfaceOptions): Server {
  const handle = createRequestHandler(options);
  const server = createServer({
    keepAliveTimeout: KEEP_ALIVE_MS,
    headersTimeout: HEADERS_MS,
    requestTimeout: REQUEST_MS,
    noDelay: true,
    // Node would answer it with an empty body.
    requireHostHeader: false,
  });
  server.on("request", (req, res) => {
    handle(req, res, false);
  });
  server.on("checkContinue", (req: IncomingMessage, res: ServerResponse) => {
    handle(req, res, true);
  });
  server.on("checkExpectation", (req: IncomingMessage, res: ServerResponse) => {
    handle(req, res, false);
  });
  server.on("clientError", (error: NodeJS.ErrnoException, socket: Socket) => {
    const exchange = latestExchange(socket);
    // The last: a message that the client's end of the connection cut short.
    if (!socket.writable || error.code === "ECONNRESET" || error.code === "HPE_INVALID_EOF_STATE")
      socket.destroy();
    else if (exchange === undefined) refuseRaw(socket, clientError(error));
    else if (exchange.decided || exchange.req.complete) socket.destroy();
    else exchange.refuse(clientError(error));
  });
  return server;
}

/** Answers on a connection whose request never became one. */
function refuseRaw(socket: Socket, error: HttpSurfaceError): void {
  const body = errorEnvelope(error);
  socket.end(
    `HTTP/1.1 ${error.status} ${STATUS_CODES[error.status] ?? ""}\r\ncontent-type: application/json\r\n` +
      `content-length: ${Buffer.byteLength(body)}\r\nconnection: close\r\n\r\n${body}`,
    () => socket.destroy(),
  );
}

function clientError({ code }: NodeJS.ErrnoException): HttpSurfaceError {
  const details = { closesConnection: true };
  switch (code) {
    case "ERR_HTTP_REQUEST_TIMEOUT":
      return new HttpSurfaceError("request_timeout", 408, "The request took too long to arrive.", details);
    case "HPE_HEADER_OVERFLOW":
      return new HttpSurfaceError("headers_too_large", 431, "The request's headers are too large.", details);
    default:
      return new HttpSurfaceError("malformed_request", 400, "This is not a valid HTTP request.", details);
  }
}
