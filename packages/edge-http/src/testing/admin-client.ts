import { once } from "node:events";
import {
  type IncomingHttpHeaders,
  type IncomingMessage,
  type Server,
  type ServerResponse,
  createServer,
  request,
} from "node:http";
import { afterEach } from "vitest";
import { type AdminSurfaceOptions, createAdminSurface } from "../admin-surface.ts";
import { FakeAdminEdge } from "./fake-admin-edge.ts";

export interface AdminAnswer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

export interface ServedAdmin {
  readonly edge: FakeAdminEdge;
  readonly port: number;
  /** Responses that the server has begun, in order. */
  readonly responses: readonly ServerResponse[];
  readonly ask: (
    path: string,
    headers?: Readonly<Record<string, string>>,
    method?: string,
  ) => Promise<AdminAnswer>;
  /** Opens an event stream and resolves once it has begun. */
  readonly subscribe: () => Promise<EventReader>;
}

const servers = new Set<Server>();

afterEach(async () => {
  for (const server of servers) {
    const closed = once(server, "close");
    server.close();
    server.closeAllConnections();
    await closed;
  }
  servers.clear();
});

export async function serveAdmin(options: Partial<AdminSurfaceOptions> = {}): Promise<ServedAdmin> {
  const edge = new FakeAdminEdge();
  const surface = createAdminSurface({ edge, ...options });
  const responses: ServerResponse[] = [];
  const server = createServer((req, res) => {
    responses.push(res);
    surface(req, res);
  });
  servers.add(server);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("no port");
  const { port } = address;
  const send = async (
    path: string,
    headers: Readonly<Record<string, string>> = {},
    method = "GET",
  ): Promise<IncomingMessage> => {
    const sent = request({ host: "127.0.0.1", port, path, method, headers, agent: false });
    sent.end();
    const [response] = await once(sent, "response", { signal: AbortSignal.timeout(5_000) });
    return response;
  };
  return {
    edge,
    port,
    responses,
    ask: async (...parameters) => {
      const response = await send(...parameters);
      let body = "";
      for await (const chunk of response) body += String(chunk);
      return { status: response.statusCode ?? 0, headers: response.headers, body };
    },
    subscribe: async () => new EventReader(await send("/api/events")),
  };
}

/** One reader of an event stream, who may stop to read. */
export class EventReader {
  readonly response: IncomingMessage;
  /** What was read. */
  text = "";
  ended = false;
  #wake: (() => void) | undefined;

  constructor(response: IncomingMessage) {
    this.response = response;
    response.setEncoding("utf8");
    response.on("data", (chunk: string) => {
      this.text += chunk;
      this.#wake?.();
    });
    response.on("error", () => {});
    response.on("close", () => {
      this.ended = true;
      this.#wake?.();
    });
  }

  /** The events so far, without comments and what is not whole yet. */
  get events(): ReadonlyArray<{
    readonly id: string | undefined;
    readonly event: string;
    readonly data: unknown;
  }> {
    return this.text
      .split("\n\n")
      .slice(0, -1)
      .map(
        (block) =>
          new Map(
            block.split("\n").map((line) => [line.split(": ", 1)[0], line.slice(line.indexOf(": ") + 2)]),
          ),
      )
      .filter((fields) => fields.has("data"))
      .map((fields) => ({
        id: fields.get("id"),
        event: fields.get("event") ?? "",
        data: JSON.parse(fields.get("data") ?? "null"),
      }));
  }

  /** Resolves once `condition` holds; it is asked again whenever something was read. */
  async until(condition: (reader: this) => boolean): Promise<void> {
    while (!condition(this)) {
      if (this.ended) throw new Error(`ended: ${this.text.slice(-500)}`);
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  async end(): Promise<void> {
    while (!this.ended)
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
  }
}
