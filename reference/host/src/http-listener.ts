import { type Server, ServerResponse } from "node:http";
import { hostPort } from "./loopback.ts";

/** How long responses that are over may take to reach their clients when a listener closes, in milliseconds. */
const FLUSH_MS = 1_000;

/** An HTTP server that listens. */
export interface HttpListener {
  /** `http://127.0.0.1:8080`, with the port that it really has. */
  readonly url: string;
  /** Takes no new connections, and no new request on those that it has; running ones go on. */
  stop(): void;
  /** `stop`, then closes what is left after a second. */
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
  let isStopped = false;
  const stop = (): void => {
    if (isStopped) return;
    isStopped = true;
    // Says on every response from now on that its connection is not to be used again.
    server.prependListener("request", (_request, response) => {
      if (response instanceof ServerResponse) response.shouldKeepAlive = false;
    });
    server.close(() => closed.resolve());
  };
  const address = server.address();
  const actual = typeof address === "object" && address !== null ? address.port : port;
  return {
    url: `http://${hostPort(host, actual)}`,
    stop,
    close: async () => {
      stop();
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
