import { once } from "node:events";
import { Agent, type IncomingHttpHeaders, type OutgoingHttpHeaders, request, type Server } from "node:http";
import { afterEach, expect } from "vitest";
import { createHttpServer, type HttpSurfaceOptions, type RequestInfo } from "../index.ts";
import { FakeEdge } from "./fake-edge.ts";
import { RawClient } from "./raw-client.ts";

export interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly rawHeaders: readonly string[];
  readonly body: Buffer;
}

export interface Served {
  readonly edge: FakeEdge;
  readonly server: Server;
  readonly port: number;
  readonly infos: readonly RequestInfo[];
  readonly agent: Agent;
  /** Resolves when `count` outcomes have been reported in all. */
  readonly reported: (count: number) => Promise<readonly RequestInfo[]>;
  readonly raw: () => RawClient;
  readonly ask: (options?: Asked) => Promise<Answer>;
}

export interface Asked {
  readonly method?: string;
  readonly path?: string;
  readonly headers?: OutgoingHttpHeaders;
  readonly body?: string | Uint8Array;
  /** On a connection of its own, not the one that all other requests share. */
  readonly apart?: boolean;
}

const open: Array<() => Promise<void>> = [];

afterEach(async () => {
  for (const close of open.splice(0)) await close();
});

/** A surface on a loopback port, over a fake Edge; after the test everything must have been released. */
export async function serve(options: Partial<HttpSurfaceOptions> = {}): Promise<Served> {
  const edge = new FakeEdge();
  const infos: RequestInfo[] = [];
  let wake: (() => void) | undefined;
  const server = createHttpServer({
    edge,
    access: { apiKeys: [] },
    onRequest: (info) => {
      infos.push(info);
      wake?.();
    },
    ...options,
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("no port");
  const { port } = address;
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const clients: RawClient[] = [];

  open.push(async () => {
    agent.destroy();
    await Promise.all(clients.map((client) => client.destroy()));
    const closed = once(server, "close");
    server.close();
    server.closeAllConnections();
    await closed;
    expect(new Set(infos.map((info) => info.requestId)).size, "one outcome a request").toBe(infos.length);
    for (const { tunnel } of edge.submitted.filter(() => edge.mode === "open"))
      expect(tunnel.over, "no tunnel is left").toBe(true);
  });

  return {
    edge,
    server,
    port,
    infos,
    agent,
    reported: async (count) => {
      while (infos.length < count)
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      return infos;
    },
    raw: () => {
      const client = new RawClient(port);
      clients.push(client);
      return client;
    },
    ask: ({ method = "POST", path = "/v1/chat/completions", headers = {}, body, apart = false } = {}) => {
      const { promise, resolve, reject } = Promise.withResolvers<Answer>();
      const json = method === "POST" ? { "content-type": "application/json" } : {};
      const req = request({
        port,
        host: "127.0.0.1",
        method,
        path,
        agent: apart ? false : agent,
        headers: { ...json, ...headers },
      });
      req.on("error", reject);
      req.on("response", (res) => {
        const chunks: Buffer[] = [];
        res.on("data", (chunk: Buffer) => chunks.push(chunk));
        res.on("error", reject);
        res.on("end", () => {
          const { statusCode = 0, headers: answered, rawHeaders } = res;
          resolve({ status: statusCode, headers: answered, rawHeaders, body: Buffer.concat(chunks) });
        });
      });
      req.end(body);
      return promise;
    },
  };
}

/** The error object of an answer. */
export function errorOf(answer: Answer): unknown {
  const parsed: unknown = JSON.parse(answer.body.toString());
  expect(parsed).toEqual({
    error: {
      message: expect.any(String),
      type: expect.any(String),
      param: expect.toSatisfy((param) => param === null || typeof param === "string"),
      code: expect.any(String),
    },
  });
  return parsed;
}
