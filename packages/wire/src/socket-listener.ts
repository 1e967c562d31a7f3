import type { AddressInfo, Server } from "node:net";

import { hostPort } from "./socket-connection.ts";
import type { Listener } from "./transport.ts";
import { WireError } from "./wire-error.ts";

export interface SocketListen {
  /** Hands out its connections itself. */
  readonly server: Server;
  readonly host: string;
  /** 0: a free one. */
  readonly port: number;
  /** Called once, when listening has ended. */
  readonly closed?: () => void;
}

/** `Transport.listen` for sockets. */
export function listenOnSocket({ server, host, port, closed }: SocketListen): Promise<Listener> {
  const { promise, resolve, reject } = Promise.withResolvers<Listener>();
  const failed = (error: Error): void => {
    reject(
      new WireError("dial_failed", `cannot listen on ${hostPort(host, port)}: ${error.message}`, {
        cause: error,
      }),
    );
  };
  let closing: Promise<void> | undefined;
  const close = (): Promise<void> => {
    if (closing === undefined) {
      server.close();
      // The connections live on; only the listening ends here.
      closing = Promise.resolve();
      closed?.();
    }
    return closing;
  };
  server.once("error", failed);
  server.listen({ host, port }, () => {
    server.off("error", failed);
    // A failed accept (out of file descriptors) must not end the process; the peer dials again.
    server.on("error", () => {});
    resolve({ address: format(server.address()), close });
  });
  return promise;
}

function format(address: AddressInfo | string | null): string {
  if (address === null || typeof address === "string") return address ?? "";
  return hostPort(address.address, address.port);
}
