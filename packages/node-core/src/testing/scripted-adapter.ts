import type {
  Adapter,
  Provider,
  ProviderConfig,
  ProviderContext,
  ProviderHealth,
  TunnelRequest,
  TunnelResponse,
  Usage,
} from "@iop/agent-runtime";
import { defineAdapter } from "@iop/agent-runtime";

/** What a test may replace of a provider. */
export interface Script {
  create?(config: ProviderConfig): void;
  start?(context: ProviderContext): Promise<void>;
  stop?(): Promise<void>;
  health?(context: ProviderContext): Promise<ProviderHealth>;
  tunnel?(request: TunnelRequest, context: ProviderContext): Promise<TunnelResponse>;
}

/** An adapter of kind `scripted` whose providers do what `script` says, and what they were called for. */
export function scriptedAdapter(script: Script): {
  readonly adapter: Adapter;
  readonly calls: string[];
} {
  const calls: string[] = [];
  const adapter = defineAdapter({
    kind: "scripted",
    create(config): Provider {
      script.create?.(config);
      calls.push(`create ${config.id}`);
      return {
        capabilities: () => ({ maxConcurrency: config.capacity, operations: ["chat_completions"] }),
        start: async (context) => {
          calls.push(`start ${config.id}`);
          await script.start?.(context);
        },
        stop: async () => {
          calls.push(`stop ${config.id}`);
          await script.stop?.();
        },
        health: async (context) => (await script.health?.(context)) ?? { health: "ok" },
        tunnel: async (request, context) => {
          calls.push(`tunnel ${config.id}`);
          return script.tunnel === undefined ? respond([]) : script.tunnel(request, context);
        },
      };
    },
  });
  return { adapter, calls };
}

/** A response of these chunks. */
export function respond(
  body: Iterable<Uint8Array> | AsyncIterable<Uint8Array>,
  more: Partial<TunnelResponse> = {},
): TunnelResponse {
  return {
    status: 200,
    headers: [],
    body: (async function* chunks() {
      yield* body;
    })(),
    usage: (): Usage | undefined => undefined,
    ...more,
  };
}

export function bytes(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}

/** Rejects once the signal has fired, as a provider does that closes its socket. */
export function untilAborted(signal: AbortSignal): Promise<never> {
  const { promise, reject } = Promise.withResolvers<never>();
  const aborted = (): void => reject(signal.reason);
  if (signal.aborted) aborted();
  else signal.addEventListener("abort", aborted);
  return promise;
}
