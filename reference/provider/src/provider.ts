import { createHash } from "node:crypto";
import { type IncomingMessage, type RequestListener, type ServerResponse, createServer } from "node:http";
import type { Socket } from "node:net";
import { BEHAVIOUR_HEADER } from "./behaviour.ts";
import { CREATED } from "./chat-completion.ts";
import { Counters, type ProviderState } from "./counters.ts";
import { type Delivery, deliver } from "./delivery.ts";
import { OpenAiError } from "./openai-error.ts";
import { parseBehaviour, planChat, planJson } from "./plan.ts";

export interface ProviderOptions {
  /** Names of the models that it serves. Default: `iop-demo`. */
  readonly models?: readonly string[] | undefined;
  /** Pace of streams that do not ask for one. Default 0: as fast as possible. */
  readonly tokensPerSecond?: number | undefined;
  /** Demanded as `authorization: Bearer KEY`. Default: nothing is. */
  readonly apiKey?: string | undefined;
}

/** A deterministic OpenAI-compatible server. */
export interface Provider extends AsyncDisposable {
  /** For a server of one's own; `listen` brings one. */
  readonly listener: RequestListener;
  /** Starts a server; port 0 (the default) picks a free one. @returns its URL, such as `http://127.0.0.1:40123`. */
  listen(address?: { readonly host?: string; readonly port?: number }): Promise<string>;
  /** Lets all hanging responses go on. */
  release(): void;
  state(): ProviderState;
  /** Resolves with the first state that fits. @throws the signal's reason. */
  when(fits: (state: ProviderState) => boolean, signal?: AbortSignal): Promise<ProviderState>;
  /** Stops serving and cuts what is open. */
  close(): Promise<void>;
}

/** Longest request body that is read, in bytes. */
const MAX_BODY_BYTES = 256 * 1024 * 1024;
/** Longest request body whose response is kept for the next time, and how many are. */
const MAX_KEPT_BODY_BYTES = 16_384;
const MAX_KEPT = 64;

export function createProvider(options: ProviderOptions = {}): Provider {
  const { models = ["iop-demo"], tokensPerSecond = 0, apiKey } = options;
  const counters = new Counters();
  const kept = new Map<string, Delivery>();
  const controlSockets = new WeakSet<Socket>();
  let hanging = Promise.withResolvers<void>();

  const release = (): void => {
    hanging.resolve();
    hanging = Promise.withResolvers();
  };

  const hang = async (signal: AbortSignal): Promise<void> => {
    const gone = Promise.withResolvers<void>();
    const onAbort = (): void => gone.resolve();
    signal.addEventListener("abort", onAbort, { once: true });
    counters.hang(1);
    if (!signal.aborted) await Promise.race([hanging.promise, gone.promise]);
    counters.hang(-1);
    signal.removeEventListener("abort", onAbort);
    signal.throwIfAborted();
  };

  const planRequest = async (request: IncomingMessage): Promise<Delivery> => {
    const { pathname } = new URL(request.url ?? "/", "http://provider");
    const header = request.headers[BEHAVIOUR_HEADER]?.toString();
    const body = await readBody(request);
    if (apiKey !== undefined && request.headers.authorization !== `Bearer ${apiKey}`)
      throw new OpenAiError(401, "Incorrect API key provided.", "invalid_api_key");
    // Before the body is looked at: what is echoed need not be JSON.
    if (parseBehaviour(header).echo === true) return planEcho(request, body);
    const route = `${request.method ?? ""} ${pathname}`;
    if (route === "GET /v1/models") return planModels(models);
    if (route !== "POST /v1/chat/completions")
      throw new OpenAiError(404, `Unknown request URL: ${route}.`, "unknown_url");

    const text = body.toString("utf8");
    const key = `${header ?? ""}\n${text}`;
    const known = kept.get(key);
    if (known !== undefined) return known;
    if (header === undefined && isEchoBody(text)) return planEcho(request, body);
    const delivery = planChat(text, header, { models, tokensPerSecond });
    if (body.length <= MAX_KEPT_BODY_BYTES && delivery.pieces.length <= MAX_KEPT_BODY_BYTES) {
      if (kept.size >= MAX_KEPT) kept.delete(kept.keys().next().value ?? "");
      kept.set(key, delivery);
    }
    return delivery;
  };

  const serve = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const gone = new AbortController();
    let cut = false;
    counters.begin();
    response.once("close", () => {
      gone.abort();
      counters.end(cut ? "cut" : response.writableFinished ? "completed" : "aborted");
    });
    let delivery: Delivery;
    try {
      delivery = await planRequest(request);
    } catch (error) {
      if (gone.signal.aborted) return;
      const known = error instanceof OpenAiError ? error : new OpenAiError(500, "The provider failed.");
      delivery = planJson(known.status, known.body());
    }
    try {
      await deliver(delivery, response, {
        signal: gone.signal,
        released: () => hang(gone.signal),
        onCut: () => (cut = true),
      });
    } catch (error) {
      if (!gone.signal.aborted) response.destroy(error instanceof Error ? error : undefined);
    }
  };

  const control = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    if (!controlSockets.has(request.socket)) {
      controlSockets.add(request.socket);
      counters.socket(-1);
    }
    const { pathname, searchParams } = new URL(request.url ?? "/", "http://provider");
    const gone = new AbortController();
    response.once("close", () => gone.abort());
    let state: ProviderState | undefined;
    if (request.method === "POST" && pathname === "/_test/release") release();
    else if (request.method === "POST" && pathname === "/_test/reset") counters.reset();
    else if (request.method === "GET" && pathname === "/_test/state") {
      const wanted = [...searchParams].map(([name, value]) => [name, Number(value)] as const);
      const fits = (now: ProviderState): boolean =>
        wanted.every(([name, value]) =>
          Object.entries(now).some(([key, is]) => key === name && is === value),
        );
      state = await counters.when(fits, gone.signal).catch(() => undefined);
    } else {
      response.writeHead(404).end();
      return;
    }
    if (gone.signal.aborted) return;
    response.setHeader("content-type", "application/json");
    response.end(`${JSON.stringify(state ?? counters.state())}\n`);
  };

  const listener: RequestListener = (request, response) => {
    const isControl = request.url?.startsWith("/_test/") === true;
    void (isControl ? control(request, response) : serve(request, response));
  };

  const server = createServer({ keepAliveTimeout: 75_000, requestTimeout: 0 }, listener);
  server.on("connection", (socket: Socket) => {
    socket.setNoDelay(true);
    counters.socket(1);
    socket.once("close", () => {
      if (!controlSockets.has(socket)) counters.socket(-1);
    });
  });

  const close = async (): Promise<void> => {
    if (!server.listening) return;
    const closed = Promise.withResolvers<void>();
    server.close(() => closed.resolve());
    server.closeAllConnections();
    await closed.promise;
  };

  return {
    listener,
    listen: async ({ host = "127.0.0.1", port = 0 } = {}) => {
      const listening = Promise.withResolvers<void>();
      server.once("error", listening.reject);
      server.listen(port, host, listening.resolve);
      await listening.promise;
      server.off("error", listening.reject);
      const address = server.address();
      return `http://${host.includes(":") ? `[${host}]` : host}:${typeof address === "object" && address !== null ? address.port : port}`;
    },
    release,
    state: () => counters.state(),
    when: (fits, signal) => counters.when(fits, signal),
    close,
    [Symbol.asyncDispose]: close,
  };
}

async function readBody(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of request) {
    const bytes =
      chunk instanceof Uint8Array
        ? Buffer.from(chunk.buffer, chunk.byteOffset, chunk.length)
        : Buffer.alloc(0);
    length += bytes.length;
    if (length > MAX_BODY_BYTES) throw new OpenAiError(413, `The body is over ${MAX_BODY_BYTES} bytes.`);
    chunks.push(bytes);
  }
  const [only] = chunks;
  return chunks.length === 1 && only !== undefined ? only : Buffer.concat(chunks);
}

function planModels(models: readonly string[]): Delivery {
  const data = models.map((id) => ({ id, object: "model", created: CREATED, owned_by: "iop" }));
  return planJson(200, JSON.stringify({ object: "list", data }));
}

/** Cheap to refuse: most bodies do not hold the word. */
function isEchoBody(text: string): boolean {
  if (!text.includes('"echo"')) return false;
  try {
    const parsed: unknown = JSON.parse(text);
    if (typeof parsed !== "object" || parsed === null || !("iop_test" in parsed)) return false;
    const { iop_test: behaviour } = parsed;
    return (
      typeof behaviour === "object" && behaviour !== null && "echo" in behaviour && behaviour.echo === true
    );
  } catch {
    return false;
  }
}

function planEcho(request: IncomingMessage, body: Buffer): Delivery {
  const headers: Array<[string, string]> = [];
  for (let index = 0; index + 1 < request.rawHeaders.length; index += 2) {
    headers.push([request.rawHeaders[index] ?? "", request.rawHeaders[index + 1] ?? ""]);
  }
  const received = {
    method: request.method,
    path: request.url,
    headers,
    body_bytes: body.length,
    body_sha256: createHash("sha256").update(body).digest("hex"),
  };
  return planJson(200, JSON.stringify(received));
}
