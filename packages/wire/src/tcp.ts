import type { AddressInfo, Socket } from "node:net";
import { connect, createServer } from "node:net";

import type { Connection, ConnectionHandlers, Listener, Transport } from "./transport.ts";
import { WireError } from "./wire-error.ts";

export interface TcpOptions {
  /** Host to dial, or address to listen on. */
  readonly host: string;
  /** 0 picks a free port when listening. */
  readonly port: number;
}

/** Plain TCP. Tokens and prompts cross it in the clear: for loopback and trusted networks. */
export function tcp(options: TcpOptions): Transport {
  const { host, port } = options;
  return {
    dial: ({ signal }) => dial(host, port, signal),
    listen: ({ accept }) => listen(host, port, accept),
  };
}

function dial(host: string, port: number, signal: AbortSignal): Promise<Connection> {
  const { promise, resolve, reject } = Promise.withResolvers<Connection>();
  if (signal.aborted) {
    reject(signal.reason);
    return promise;
  }
  const socket = connect({ host, port, noDelay: true });
  const settle = (): void => {
    signal.removeEventListener("abort", aborted);
    socket.off("connect", connected);
    socket.off("error", failed);
  };
  const aborted = (): void => {
    settle();
    socket.on("error", () => {});
    socket.destroy();
    reject(signal.reason);
  };
  const connected = (): void => {
    settle();
    resolve(new TcpConnection(socket));
  };
  const failed = (error: Error): void => {
    settle();
    reject(new WireError("dial_failed", `${host}:${port}: ${error.message}`, { cause: error }));
  };
  signal.addEventListener("abort", aborted);
  socket.once("connect", connected);
  socket.once("error", failed);
  return promise;
}

function listen(host: string, port: number, accept: (connection: Connection) => void): Promise<Listener> {
  const { promise, resolve, reject } = Promise.withResolvers<Listener>();
  const server = createServer({ noDelay: true }, (socket) => accept(new TcpConnection(socket)));
  const failed = (error: Error): void => {
    reject(
      new WireError("dial_failed", `cannot listen on ${host}:${port}: ${error.message}`, { cause: error }),
    );
  };
  server.once("error", failed);
  server.listen({ host, port }, () => {
    server.off("error", failed);
    // A failed accept (out of file descriptors) must not end the process; the peer dials again.
    server.on("error", () => {});
    resolve({ address: format(server.address()), close: () => close() });
  });
  let closing: Promise<void> | undefined;
  const close = (): Promise<void> => {
    closing ??= new Promise((done) => {
      server.close(() => done());
      // The connections live on; only the listening ends here.
      done();
    });
    return closing;
  };
  return promise;
}

function format(address: AddressInfo | string | null): string {
  if (address === null || typeof address === "string") return address ?? "";
  return address.family === "IPv6"
    ? `[${address.address}]:${address.port}`
    : `${address.address}:${address.port}`;
}

class TcpConnection implements Connection {
  readonly remote: string;
  readonly #socket: Socket;
  #error: Error | undefined;

  constructor(socket: Socket) {
    this.#socket = socket;
    this.remote = `${socket.remoteAddress ?? "?"}:${socket.remotePort ?? "?"}`;
    // Until `open`, and after `destroy`, an error must not be unhandled.
    socket.on("error", (error) => {
      this.#error ??= error;
    });
  }

  get queuedBytes(): number {
    return this.#socket.writableLength;
  }

  open(handlers: ConnectionHandlers): void {
    const socket = this.#socket;
    socket.on("data", (chunk: Buffer) => handlers.data(chunk));
    // Node's sockets drain from 64 KiB (`writableHighWaterMark`), where the session stops adding data.
    socket.on("drain", () => handlers.drained());
    // A peer that has ended hears nothing more: what is queued for it is lost either way.
    socket.on("end", () => socket.destroy());
    socket.on("close", () => handlers.closed(this.#error));
  }

  write(chunks: readonly Uint8Array[]): void {
    const socket = this.#socket;
    if (!socket.writable) return;
    const [first] = chunks;
    if (chunks.length === 1 && first !== undefined) {
      socket.write(first);
      return;
    }
    socket.cork();
    for (const chunk of chunks) socket.write(chunk);
    socket.uncork();
  }

  end(lingerMs: number): void {
    const socket = this.#socket;
    if (socket.destroyed) return;
    const timer = setTimeout(() => socket.destroy(), lingerMs);
    timer.unref();
    socket.once("close", () => clearTimeout(timer));
    socket.end();
  }

  destroy(error?: Error): void {
    this.#error ??= error;
    this.#socket.destroy();
  }
}
