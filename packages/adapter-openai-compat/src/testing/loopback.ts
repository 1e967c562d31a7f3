import { createServer, type RequestListener, type Server as HttpServer } from "node:http";
import { createServer as createTcpServer, type Server, type Socket } from "node:net";
import type {
  AdapterContext,
  Provider,
  ProviderConfig,
  RuntimeProfile,
  TunnelRequest,
  TunnelResponse,
} from "@iop/agent-runtime";
import { RuntimeError } from "@iop/agent-runtime";
import { onTestFinished } from "vitest";
import { openAiCompat } from "../open-ai-compat.ts";

export const profile: RuntimeProfile = {
  name: "openai-chat",
  driver: "openai_chat",
  auth: { header: "authorization", scheme: "Bearer" },
  operations: { chat_completions: "/v1/chat/completions", models: "/v1/models" },
  capabilities: ["chat", "streaming"],
  extensions: {},
};

export interface Loopback<S> {
  readonly server: S;
  readonly origin: string;
}

/** An HTTP server until the test ends. */
export async function httpServer(handler: RequestListener): Promise<Loopback<HttpServer>> {
  const server = createServer(handler);
  onTestFinished(
    () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  );
  return { server, origin: await listen(server) };
}

/** A TCP server until the test ends. */
export async function tcpServer(connected: (socket: Socket) => void): Promise<Loopback<Server>> {
  const sockets = new Set<Socket>();
  const server = createTcpServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => {});
    socket.once("close", () => sockets.delete(socket));
    connected(socket);
  });
  onTestFinished(
    () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        for (const socket of sockets) socket.destroy();
      }),
  );
  return { server, origin: await listen(server) };
}

/** A TCP server that calls `answer` when a request's head has arrived. */
export function answering(answer: (socket: Socket) => void): Promise<Loopback<Server>> {
  return tcpServer((socket) => {
    let seen = "";
    socket.on("data", (data) => {
      seen += data.toString("latin1");
      if (!seen.includes("\r\n\r\n")) return;
      seen = "";
      answer(socket);
    });
  });
}

async function listen(server: Server): Promise<string> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  server.once("error", reject);
  server.listen(0, "127.0.0.1", resolve);
  await promise;
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("the server has no port");
  return `http://127.0.0.1:${address.port}`;
}

/** A provider until the test ends. */
export function providerAt(
  endpoint: string,
  over: Partial<ProviderConfig> = {},
  context: AdapterContext = { env: () => undefined },
): TunnelingProvider {
  const provider = openAiCompat().create({ ...config(endpoint), ...over }, context);
  onTestFinished(async () => {
    await provider.stop?.();
  });
  return new TunnelingProvider(provider);
}

export function config(endpoint: string): ProviderConfig {
  return {
    id: "p",
    adapter: "openai-compat",
    endpoint,
    capacity: 4,
    profile,
    firstByteTimeoutMs: 0,
    idleTimeoutMs: 0,
  };
}

/** A provider, with less to write for a request. */
export class TunnelingProvider {
  readonly provider: Provider;

  constructor(provider: Provider) {
    this.provider = provider;
  }

  async tunnel(over: Partial<TunnelRequest> = {}, signal?: AbortSignal): Promise<TunnelResponse> {
    const response = await this.provider.tunnel?.(
      { ...request, ...over },
      { signal: signal ?? new AbortController().signal },
    );
    if (response === undefined) throw new Error("the provider has no tunnel");
    return response;
  }

  async health(signal?: AbortSignal): Promise<string> {
    const answer = await this.provider.health?.({ signal: signal ?? new AbortController().signal });
    return answer?.reason === undefined ? String(answer?.health) : `${answer.health}: ${answer.reason}`;
  }
}

const request: TunnelRequest = {
  requestId: "r1",
  operation: "chat_completions",
  method: "POST",
  path: "",
  headers: [["content-type", "application/json"]],
  body: [Buffer.from("{}")],
  target: "m",
  firstByteTimeoutMs: 0,
  idleTimeoutMs: 0,
};

export async function readAll(body: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of body) chunks.push(chunk);
  return Buffer.concat(chunks);
}

/** Code of what `act` rejects with; "none" where it does not. */
export async function codeOf(act: Promise<unknown> | (() => unknown)): Promise<string> {
  try {
    await (typeof act === "function" ? act() : act);
  } catch (error) {
    return RuntimeError.is(error) ? error.code : `not a RuntimeError: ${String(error)}`;
  }
  return "none";
}
