import type { Server, ServerResponse } from "node:http";
import { hostPort } from "./loopback.ts";

/** How long responses that are over may take to reach their clients when a listener closes, in milliseconds. */
const FLUSH_MS = 1_000;

/** An HTTP server that listens. */
export interface HttpListener {
  /** `http://127.0.0.1:8080`, with the port that it really has. */
  readonly url: string;
  /** Serves on, but each connection for one more response only: who comes is told why, and nobody stays. */
  drain(): void;
  /** `drain`, and closes to new connections; running requests go on, those that are left after a second are closed. */
  close(): Promise<void>;
}

/**
 * Binds `server`. `key` names it in the configuration.
 * @throws Error that names the key and the address.
 */
export async function listenHttp(
  server: Server,
  { host, port }: { readonly host: string; readonly port: number },
  key: string,
): Promise<HttpListener> {
  const listening = Promise.withResolvers<void>();
  server.once("error", listening.reject);
  server.listen(port, host, listening.resolve);
  try {
    await listening.promise;
  } catch (error) {
    throw new Error(`${key}: cannot listen on ${hostPort(host, port)}: ${reasonOf(error)}`, { cause: error });
  }
  server.off("error", listening.reject);

  const closed = Promise.withResolvers<void>();
  const open = new Set<ServerResponse>();
  let draining = false;
  const track = (_request: unknown, response: ServerResponse): void => {
    open.add(response);
    if (draining) response.shouldKeepAlive = false;
    response.once("close", () => {
      open.delete(response);
      if (draining) server.closeIdleConnections();
    });
  };
  for (const event of ["request", "checkContinue", "checkExpectation"]) server.prependListener(event, track);
  const drain = (): void => {
    draining = true;
    // Those whose head has left have promised to stay; they are closed once they are idle.
    for (const response of open) if (!response.headersSent) response.shouldKeepAlive = false;
    server.closeIdleConnections();
  };
  const address = server.address();
  const actual = typeof address === "object" && address !== null ? address.port : port;
  return {
    url: `http://${hostPort(host, actual)}`,
    drain,
    close: async () => {
      drain();
      server.close(() => closed.resolve());
      const timer = setTimeout(() => server.closeAllConnections(), FLUSH_MS);
      await closed.promise;
      clearTimeout(timer);
    },
  };
}

function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return "code" in error && error.code === "EADDRINUSE" ? "another process listens there" : error.message;
}
