import type { ProviderTunnel, TunnelFrame } from "@iop/edge-core";
import type { Exchange } from "./exchange.ts";
import { HttpSurfaceError } from "./http-surface-error.ts";
import { invalidResponse, responseHead } from "./response-head.ts";
import { fromUpstream } from "./upstream-error.ts";

/**
 * Hands a tunnelled response to the client, frame by frame: the next one is asked for only when the
 * client's connection has taken the one before. The tunnel is attached.
 * @throws HttpSurfaceError where the answer is an error of ours
 */
export async function relayTunnel(exchange: Exchange, tunnel: ProviderTunnel): Promise<void> {
  let started = false;
  for await (const frame of tunnel) {
    // Leaving the loop also cancels the tunnel.
    if (exchange.decided) return;
    if (!started && (frame.kind === "body" || frame.kind === "end")) throw brokenOrder();
    switch (frame.kind) {
      case "start":
        if (started) throw brokenOrder();
        started = true;
        begin(exchange, frame);
        break;
      case "body": {
        const taken = exchange.write(frame.body);
        if (taken !== undefined) await taken;
        break;
      }
      case "usage":
        exchange.usage = frame.usage;
        break;
      case "end":
        exchange.detach();
        exchange.end();
        return;
      case "error":
        exchange.detach();
        if (!started) throw fromUpstream(frame.code, frame.message);
        exchange.cut(frame.code);
        return;
    }
  }
  throw brokenOrder();
}

function begin(exchange: Exchange, { status, headers }: Extract<TunnelFrame, { kind: "start" }>): void {
  const head = responseHead(status, headers, exchange.ownHeaders("busy"));
  try {
    exchange.begin(head);
  } catch (error) {
    throw invalidResponse("a header that HTTP cannot carry", error);
  }
}

function brokenOrder(): HttpSurfaceError {
  return invalidResponse("its frames are out of order");
}
