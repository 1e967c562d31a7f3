import { createServer } from "node:net";

/** Below the range that systems take ports of outgoing connections from: a host that restarts finds it free again. */
const FIRST = 20_000;
const LAST = 32_000;

/** A port of 127.0.0.1 that nobody listens on now. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = FIRST + Math.floor(Math.random() * (LAST - FIRST));
    const server = createServer();
    const { promise, resolve } = Promise.withResolvers<boolean>();
    server.once("error", () => resolve(false));
    server.listen(port, "127.0.0.1", () => resolve(true));
    if (!(await promise)) continue;
    await new Promise((closed) => {
      server.close(closed);
    });
    return port;
  }
}
