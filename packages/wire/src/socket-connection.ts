import type { Socket } from "node:net";

import type { Connection, ConnectionHandlers } from "./transport.ts";

/** A connected socket of `node:net` or `node:tls` as a `Connection`. Owns the socket. */
export class SocketConnection implements Connection {
  readonly remote: string;
  readonly #socket: Socket;
  #error: Error | undefined;

  constructor(socket: Socket) {
    this.#socket = socket;
    this.remote = remoteOf(socket);
    // Frames of one turn leave together; none is to wait for an acknowledgement.
    socket.setNoDelay(true);
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

/** The other end, for logs: `127.0.0.1:50412`. Only known while the socket is open. */
export function remoteOf(socket: Socket): string {
  return hostPort(socket.remoteAddress ?? "?", socket.remotePort ?? "?");
}

/** `host:port`, with an IPv6 address in brackets. */
export function hostPort(host: string, port: number | string): string {
  return host.includes(":") && !host.startsWith("[") ? `[${host}]:${port}` : `${host}:${port}`;
}
