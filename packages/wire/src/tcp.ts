import { connect, createServer } from "node:net";

import { hostPort, SocketConnection } from "./socket-connection.ts";
import { dialSocket } from "./socket-dial.ts";
import { listenOnSocket } from "./socket-listener.ts";
import type { Transport } from "./transport.ts";
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
    dial: ({ signal }) =>
      dialSocket({
        connect: () => connect({ host, port }),
        event: "connect",
        failure: (error) =>
          new WireError("dial_failed", `${hostPort(host, port)}: ${error.message}`, { cause: error }),
        signal,
      }),
    listen: ({ accept }) =>
      listenOnSocket({
        server: createServer((socket) => accept(new SocketConnection(socket))),
        host,
        port,
      }),
  };
}
