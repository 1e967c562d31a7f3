import {
  RuntimeError,
  type Provider,
  type ProviderCapabilities,
  type ProviderConfig,
  type ProviderContext,
  type ProviderHealth,
  type TunnelRequest,
  type TunnelResponse,
} from "@iop/agent-runtime";
import { createUsageObserver, type UsageObserver } from "@iop/provider-protocols";
import type { Credential } from "./credential.ts";
import { Exchange } from "./exchange.ts";
import { askHealth } from "./health.ts";
import type { ProviderConnections } from "./provider-connections.ts";
import type { ProviderRoutes } from "./provider-routes.ts";
import { toProviderHeaders } from "./request-headers.ts";
import type { ResponseHead } from "./response-head.ts";

export interface OpenAiCompatProviderOptions {
  readonly config: ProviderConfig;
  readonly routes: ProviderRoutes;
  readonly credential: Credential | undefined;
  /** Owned: closed by `stop`. */
  readonly connections: ProviderConnections;
}

/** One OpenAI-compatible server. */
export class OpenAiCompatProvider implements Provider {
  readonly #config: ProviderConfig;
  readonly #routes: ProviderRoutes;
  readonly #credential: Credential | undefined;
  readonly #connections: ProviderConnections;

  constructor(options: OpenAiCompatProviderOptions) {
    this.#config = options.config;
    this.#routes = options.routes;
    this.#credential = options.credential;
    this.#connections = options.connections;
  }

  capabilities(): ProviderCapabilities {
    return { maxConcurrency: this.#config.capacity, operations: this.#routes.operations };
  }

  async stop(): Promise<void> {
    await this.#connections.close();
  }

  health(context: ProviderContext): Promise<ProviderHealth> {
    return askHealth({
      connections: this.#connections,
      route: this.#routes.probe,
      headers: toProviderHeaders([], this.#credential),
      signal: context.signal,
    });
  }

  async tunnel(request: TunnelRequest, context: ProviderContext): Promise<TunnelResponse> {
    const route = this.#routes.resolve(request);
    if (route.method !== "POST" && request.body.some((chunk) => chunk.byteLength > 0))
      throw new RuntimeError("invalid_request", `${route.method} takes no body`);
    const exchange = new Exchange({
      connections: this.#connections,
      route,
      headers: toProviderHeaders(request.headers, this.#credential),
      body: route.method === "POST" ? request.body : [],
      signal: context.signal,
      firstByteTimeoutMs: request.firstByteTimeoutMs || this.#config.firstByteTimeoutMs,
      idleTimeoutMs: request.idleTimeoutMs || this.#config.idleTimeoutMs,
      observe: (head) => this.#observe(head),
    });
    const { head, body, observer } = await exchange.run();
    return { status: head.status, headers: head.headers, body, usage: () => observer.usage() };
  }

  #observe(head: ResponseHead): UsageObserver {
    return createUsageObserver({
      // Under an encoding the bytes say nothing to the observer.
      contentType: head.encoded ? undefined : head.contentType,
      driver: this.#config.profile?.driver ?? "openai_chat",
    });
  }
}
