import { Socket } from "node:net";
import { Agent, buildConnector, type Dispatcher } from "undici";

/** Longest wait for a connection, in milliseconds. */
const CONNECT_TIMEOUT_MS = 10_000;

/**
 * How long an unused connection is kept, in milliseconds, unless the server says otherwise: below the 5 s
 * after which uvicorn, llama.cpp and Node close theirs, because a request that meets the close is lost.
 */
const KEEP_ALIVE_MS = 4_000;

/** One attempt to send a request. */
export interface Dispatched {
  /** Gives up the connection that is being opened for the request, if one is. Only before the request has started. */
  abandon(): void;
}

/** The connections to one provider. HTTP/1.1: one exchange at a time on each, as many as there are exchanges. */
export class ProviderConnections {
  readonly #origin: string;
  readonly #agent: Agent;
  /** Open sockets, each with what resolves when it has closed. */
  readonly #sockets = new Map<Socket, Promise<void>>();
  #closing: Promise<void> | undefined;
  #opened: Socket | undefined;
  #failing = false;

  constructor(options: { readonly origin: string; readonly connectTimeoutMs?: number }) {
    this.#origin = options.origin;
    const connect = buildConnector({
      timeout: options.connectTimeoutMs ?? CONNECT_TIMEOUT_MS,
      allowH2: false,
    });
    this.#agent = new Agent({
      allowH2: false,
      // Otherwise an environment variable could choose the experimental parser.
      useMilo: false,
      pipelining: 1,
      keepAliveTimeout: KEEP_ALIVE_MS,
      // Ours apply: see Exchange.
      headersTimeout: 0,
      bodyTimeout: 0,
      connect: (target, callback) => {
        const socket: unknown = connect(target, (...outcome) => {
          const connected = outcome[1];
          // Around the client's own listener, which it adds when it is told of the connection.
          connected?.on("error", () => (this.#failing = true));
          callback(...outcome);
          connected?.on("error", () => (this.#failing = false));
        });
        if (socket instanceof Socket) this.#track(socket);
        return socket;
      },
    });
  }

  /** Whether a connection is reporting its failure right now, further up this call stack. */
  get failing(): boolean {
    return this.#failing;
  }

  /** Sends a request; `handler` hears of everything that follows, failures too. */
  dispatch(
    request: Pick<Dispatcher.DispatchOptions, "path" | "method" | "headers" | "body">,
    handler: Dispatcher.DispatchHandler,
  ): Dispatched {
    // The client opens a connection within this call or not at all.
    this.#opened = undefined;
    this.#agent.dispatch({ ...request, origin: this.#origin }, handler);
    const opened = this.#takeOpened();
    return { abandon: () => void opened?.destroy(new Error("given up")) };
  }

  /** Resolves when the connections that have been destroyed so far are closed; the operating system does that at once. */
  destroyedClosed(): Promise<void> {
    // Many exchanges may be cancelled in one turn: they look through the sockets once, at its end.
    this.#closing ??= this.#whenDestroyedClosed();
    return this.#closing;
  }

  /** Closes all connections; what still runs on them fails. */
  async close(): Promise<void> {
    await this.#agent.destroy();
    for (const socket of this.#sockets.keys()) socket.destroy();
    await Promise.all(this.#sockets.values());
  }

  async #whenDestroyedClosed(): Promise<void> {
    await Promise.resolve();
    this.#closing = undefined;
    const closing: Promise<void>[] = [];
    for (const [socket, closed] of this.#sockets) if (socket.destroyed) closing.push(closed);
    await Promise.all(closing);
  }

  #takeOpened(): Socket | undefined {
    const opened = this.#opened;
    this.#opened = undefined;
    return opened;
  }

  #track(socket: Socket): void {
    this.#opened = socket;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#sockets.set(socket, promise);
    socket.once("close", () => {
      this.#sockets.delete(socket);
      resolve();
    });
  }
}
