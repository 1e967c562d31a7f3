import type { Socket } from "node:net";
import type { Exchange } from "./exchange.ts";

/** Exchanges whose response waits for others of the same connection; HTTP clients hardly ever pipeline. */
const waiting = new WeakMap<Socket, Set<Exchange>>();

/**
 * Counts `exchange` among those that wait, until its turn comes, and tells it of the connection's end,
 * of which Node before 24 does not tell such a response. Returns how many wait now.
 */
export function joinPipeline(exchange: Exchange): number {
  const { req, res } = exchange;
  const { socket } = req;
  let exchanges = waiting.get(socket);
  if (exchanges === undefined) {
    exchanges = new Set();
    waiting.set(socket, exchanges);
    socket.once("close", () => {
      for (const each of waiting.get(socket) ?? []) each.close();
      waiting.delete(socket);
    });
  }
  const others = exchanges;
  others.add(exchange);
  res.once("socket", () => others.delete(exchange));
  return others.size;
}
