import { RuntimeError, type ProviderHealth } from "@iop/agent-runtime";
import { createUsageObserver } from "@iop/provider-protocols";
import { Exchange, type ExchangeResponse } from "./exchange.ts";
import type { ProviderConnections } from "./provider-connections.ts";
import type { Route } from "./provider-routes.ts";

/** Answers are read to their end up to here, so that the connection can be used again; beyond it is closed. */
const MAX_DRAINED_BYTES = 1024 * 1024;

export interface HealthQuestion {
  readonly connections: ProviderConnections;
  readonly route: Route;
  /** Name and value alternate. */
  readonly headers: readonly string[];
  /** Fires when the time for an answer is up. */
  readonly signal: AbortSignal;
}

/**
 * Asks the server for something cheap. `offline`: no connection. `degraded`: connected, but it does not answer
 * before the signal fires, not in HTTP, or with an error, the reason says which; a refused key (401, 403) is
 * one. `ok`: anything else. Never rejects.
 */
export async function askHealth(question: HealthQuestion): Promise<ProviderHealth> {
  const exchange = new Exchange({
    ...question,
    body: [],
    firstByteTimeoutMs: 0,
    idleTimeoutMs: 0,
    observe: () => createUsageObserver({ contentType: undefined, driver: "openai_chat" }),
  });
  try {
    return judge(question.route, await drained(await exchange.run()));
  } catch (error) {
    const failure = RuntimeError.from(error);
    const reason = failure.code === "cancelled" ? "no answer in time" : failure.message;
    return { health: exchange.sent ? "degraded" : "offline", reason };
  }
}

async function drained({ head, body }: ExchangeResponse): Promise<number> {
  let bytes = 0;
  for await (const chunk of body) {
    bytes += chunk.byteLength;
    if (bytes > MAX_DRAINED_BYTES) break;
  }
  return head.status;
}

function judge({ method, path }: Route, status: number): ProviderHealth {
  if (status < 400) return { health: "ok" };
  const what = status === 401 || status === 403 ? "the key is refused" : "an error";
  return { health: "degraded", reason: `${method} ${path} answered ${status}: ${what}` };
}
