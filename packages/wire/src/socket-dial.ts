import type { Socket } from "node:net";

import { SocketConnection } from "./socket-connection.ts";
import type { Connection } from "./transport.ts";

export interface SocketDial<T extends Socket> {
  /** Starts to connect. */
  readonly connect: () => T;
  /** The socket's event that says that bytes may be exchanged. */
  readonly event: "connect" | "secureConnect";
  /** What the dial rejects with. */
  readonly failure: (error: Error, socket: T) => Error;
  readonly signal: AbortSignal;
}

/** `Transport.dial` for sockets: connected, or failed, or aborted, and then nothing is left behind. */
export function dialSocket<T extends Socket>(dial: SocketDial<T>): Promise<Connection> {
  const { event, failure, signal } = dial;
  const { promise, resolve, reject } = Promise.withResolvers<Connection>();
  if (signal.aborted) {
    reject(signal.reason);
    return promise;
  }
  const socket = dial.connect();
  const settle = (): void => {
    signal.removeEventListener("abort", aborted);
    socket.off(event, connected);
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
    resolve(new SocketConnection(socket));
  };
  const failed = (error: Error): void => {
    settle();
    reject(failure(error, socket));
  };
  signal.addEventListener("abort", aborted);
  socket.once(event, connected);
  socket.once("error", failed);
  return promise;
}
