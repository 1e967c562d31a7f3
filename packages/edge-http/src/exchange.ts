import { randomUUID } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { ProviderTunnel, QueueWait, RunDispatch, Usage } from "@iop/edge-core";
import type { ApiKey } from "./api-keys.ts";
import { ConsumerWatch } from "./consumer-watch.ts";
import { errorEnvelope } from "./error-envelope.ts";
import type { HttpSurfaceError } from "./http-surface-error.ts";
import { attributionHeaders, queueHeaders } from "./own-headers.ts";
import type { RequestInfo, RequestOutcome } from "./request-info.ts";
import type { ResponseHead } from "./response-head.ts";

/** An unread rest of a request body up to this size is read and dropped, and the connection kept. */
const DRAINED_REST_BYTES = 65_536;
/** How long the rest of a longer one is read and dropped, so that the client sees the answer and not a reset. */
const LINGER_MS = 5_000;

/** The latest exchange of each connection, while it lasts: the one that a broken message belongs to. */
const latest = new WeakMap<Socket, Exchange>();

/** The exchange whose request `socket` brought last; undefined where that is over. */
export function latestExchange(socket: Socket): Exchange | undefined {
  return latest.get(socket);
}

export interface ExchangeSettings {
  readonly slowConsumerMs: number;
  readonly attributionHeaders: boolean;
  readonly onRequest: ((info: RequestInfo) => void) | undefined;
}

/**
 * One request and its response, from the head of the one to the last byte of the other. It alone
 * writes to the response, notices that the client has left, and reports the one outcome.
 */
export class Exchange {
  readonly id: string = randomUUID();
  readonly req: IncomingMessage;
  readonly res: ServerResponse;
  operation: string | undefined;
  key: ApiKey | undefined;
  model: string | undefined;
  usage: Usage | undefined;
  /** How it waited for a provider. */
  queue: QueueWait | undefined;
  /** Bytes of the request body that have been read. */
  receivedBytes = 0;
  /** Called once when the client's connection is lost or the response is complete. */
  onOver: (() => void) | undefined;

  readonly #settings: ExchangeSettings;
  readonly #startedAt = performance.now();
  /** The client waits for `100 Continue` before it sends the body. */
  #awaitsContinue: boolean;
  #abort: AbortController | undefined;
  #tunnel: ProviderTunnel | undefined;
  #dispatch: RunDispatch | undefined;
  #outcome: RequestOutcome | undefined;
  #code: string | undefined;
  #status = 0;
  #over = false;
  /** Whether the Edge is being asked; until it answers, nobody knows whether it was dispatched. */
  #submitting = false;
  #durationMs = 0;
  #reported = false;
  /** The head is written but may still be held back, to go out with the first body bytes. */
  #headHeld = false;
  #contentLength: number | undefined;
  #hasBody = true;
  #sentBytes = 0;
  #watch: ConsumerWatch | undefined;
  #linger: NodeJS.Timeout | undefined;

  constructor(
    req: IncomingMessage,
    res: ServerResponse,
    awaitsContinue: boolean,
    settings: ExchangeSettings,
  ) {
    this.req = req;
    this.res = res;
    this.#awaitsContinue = awaitsContinue;
    this.#settings = settings;
    latest.set(req.socket, this);
    res.once("close", () => this.close());
  }

  /** The client has left, or the response is complete: nothing more can be said. */
  get over(): boolean {
    return this.#over;
  }

  /** The outcome is decided; what is left is to send it. */
  get decided(): boolean {
    return this.#outcome !== undefined || this.#over;
  }

  /** Aborts when the client leaves before a tunnel is attached. */
  get signal(): AbortSignal {
    this.#abort ??= new AbortController();
    return this.#abort.signal;
  }

  /** Tells a client that asked first to send its body. */
  continue(): void {
    if (!this.#awaitsContinue) return;
    this.#awaitsContinue = false;
    this.res.writeContinue();
  }

  /** Resolves when the response is next on its connection, or when the client has left. */
  turn(): Promise<void> | undefined {
    if (this.res.socket !== null || this.#over) return undefined;
    return new Promise((resolve) => {
      this.onOver = resolve;
      this.res.once("socket", () => resolve());
    });
  }

  /** What this surface adds to its responses; `reason`: of the wait, if there was one. */
  ownHeaders(reason?: string): string[] {
    const headers = ["x-iop-request-id", this.id];
    if (this.#dispatch !== undefined && this.#settings.attributionHeaders)
      headers.push(...attributionHeaders(this.#dispatch));
    if (this.queue !== undefined) headers.push(...queueHeaders(this.queue, reason));
    return headers;
  }

  /** The Edge is asked; `settled` follows, and the outcome is not reported before it. */
  submit(): void {
    this.#submitting = true;
  }

  /** The Edge has answered, if by a tunnel that is attached. */
  settled(): void {
    this.#submitting = false;
    if (this.#over) this.#report();
  }

  /** From here on the client's leaving cancels the tunnel. */
  attach(tunnel: ProviderTunnel): void {
    this.#dispatch = tunnel.dispatch;
    this.queue = tunnel.queue;
    this.#abort = undefined;
    if (this.#over) tunnel.cancel("client_closed");
    else this.#tunnel = tunnel;
  }

  /** The tunnel has said its last: nothing is left to cancel. */
  detach(): void {
    this.#tunnel = undefined;
  }

  /** Answers with an error of ours; once something is decided, does nothing. */
  refuse(error: HttpSurfaceError): void {
    if (this.decided) return;
    if (this.res.headersSent) {
      this.cut(error.code);
      return;
    }
    this.#outcome = "refused";
    this.#code = error.code;
    this.#stopTunnel(error.code);
    const headers: string[] = [];
    for (const [name, value] of Object.entries(error.headers)) headers.push(name, value);
    this.#respond(error.status, headers, errorEnvelope(error), error.closesConnection);
  }

  /** Answers with JSON of ours. */
  reply(json: string): void {
    if (this.decided) return;
    this.#outcome = "completed";
    this.#respond(200, [], json, false);
  }

  /**
   * Starts the relayed response. The head goes out with the first body bytes if they are here in this
   * turn of the event loop, else at its end.
   * @throws TypeError for a header that HTTP cannot carry; nothing has been sent then
   */
  begin(head: ResponseHead): void {
    this.res.writeHead(head.status, head.headers);
    this.#status = head.status;
    this.#contentLength = head.contentLength;
    this.#hasBody = head.hasBody;
    this.#headHeld = true;
    setImmediate(flushHead, this);
  }

  /** Sends body bytes of the relayed response; resolves when it takes more, undefined where it does now. */
  write(body: Uint8Array): Promise<void> | undefined {
    const { byteLength } = body;
    if (byteLength === 0 || !this.#hasBody || this.decided) return undefined;
    this.#sentBytes += byteLength;
    // What is beyond the announced length would be read as the next response of the connection.
    if (this.#contentLength !== undefined && this.#sentBytes > this.#contentLength) {
      this.cut("content_length_exceeded");
      return undefined;
    }
    this.#headHeld = false;
    // A small view that has to wait would keep the whole read chunk of the Node's connection alive.
    const waits = this.res.writableLength > 0 && body.buffer.byteLength > 4 * byteLength;
    return this.res.write(waits ? new Uint8Array(body) : body) ? undefined : this.#watcher().drained();
  }

  /** Ends the relayed response as cleanly as the provider did. */
  end(): void {
    if (this.decided) return;
    if (this.#hasBody && this.#contentLength !== undefined && this.#sentBytes < this.#contentLength) {
      this.cut("content_length_not_reached");
      return;
    }
    this.#outcome = "completed";
    this.#end();
  }

  /**
   * Breaks the relayed response off: what was sent stays, and what the client has can not be taken
   * for the whole. Nothing is ever put into a relayed body, so the broken connection is all it says.
   */
  cut(code: string): void {
    if (this.decided) return;
    this.#outcome = "cut";
    this.#code = code;
    this.#stopTunnel(code);
    const { socket } = this.res;
    if (socket === null) {
      this.res.destroy();
    } else if (this.#contentLength === undefined && this.req.httpVersion === "1.0") {
      // The end of the connection is the end of such a body; only a reset says otherwise.
      socket.resetAndDestroy();
    } else {
      socket.destroySoon();
      this.#watcher().last();
    }
  }

  /** Sends a head that is still held back. */
  flushHead(): void {
    if (!this.#headHeld || this.decided) return;
    this.#headHeld = false;
    this.res.flushHeaders();
  }

  /** The connection is lost or the response complete: releases everything and reports, once. */
  close(): void {
    if (this.#over) return;
    this.#over = true;
    if (latest.get(this.req.socket) === this) latest.delete(this.req.socket);
    clearTimeout(this.#linger);
    this.#watch?.release();
    if (this.#outcome === undefined || (this.#outcome === "completed" && !this.res.writableFinished))
      this.#outcome = "client_closed";
    this.#stopTunnel("client_closed");
    this.#abort?.abort();
    this.#abort = undefined;
    const over = this.onOver;
    this.onOver = undefined;
    over?.();
    this.#durationMs = performance.now() - this.#startedAt;
    if (!this.#submitting) this.#report();
  }

  #report(): void {
    if (this.#reported || this.#outcome === undefined) return;
    this.#reported = true;
    this.#settings.onRequest?.({
      requestId: this.id,
      method: this.req.method ?? "",
      operation: this.operation,
      key: this.key?.name,
      model: this.model?.slice(0, 256),
      status: this.#status,
      durationMs: this.#durationMs,
      outcome: this.#outcome,
      code: this.#code,
      queuedMs: this.queue?.waitedMs,
      dispatch: this.#dispatch,
      usage: this.usage,
    });
  }

  /** Sends a whole response of ours, and sees to the request body that nobody will read. */
  #respond(status: number, headers: string[], json: string, closesConnection: boolean): void {
    this.#status = status;
    const body = Buffer.from(json);
    headers.push("content-type", "application/json", "content-length", String(body.byteLength));
    headers.push(...this.ownHeaders());
    const rest = this.#unreadBytes();
    // A client that was not told to go on may send its body or not: nobody can say what comes next.
    const abandoned = closesConnection || (this.#awaitsContinue && rest > 0);
    const lingers = !abandoned && rest > DRAINED_REST_BYTES;
    if (abandoned || lingers) headers.push("connection", "close");
    this.res.writeHead(status, headers);
    this.req.resume();
    if (lingers) this.#lingerAfter(body);
    else this.#end(body);
  }

  #end(body?: Uint8Array): void {
    this.#headHeld = false;
    this.res.end(body);
    if (!this.res.writableFinished && this.res.writableLength > 0) this.#watcher().last();
  }

  /** Bytes of the request body that are still to come; infinite where it does not say. */
  #unreadBytes(): number {
    if (this.req.complete) return 0;
    const { headers } = this.req;
    if (headers["transfer-encoding"] !== undefined) return Number.POSITIVE_INFINITY;
    return Number(headers["content-length"] ?? 0) - this.receivedBytes;
  }

  /** The answer is complete for the client at once; the connection is closed when the body has come, or after a while. */
  #lingerAfter(body: Uint8Array): void {
    this.res.write(body);
    const end = (): void => this.#end();
    this.req.once("end", end);
    this.#linger = setTimeout(end, LINGER_MS);
  }

  #watcher(): ConsumerWatch {
    this.#watch ??= new ConsumerWatch(this.res, this.#settings.slowConsumerMs, () => this.#stalled());
    return this.#watch;
  }

  #stalled(): void {
    if (this.#outcome === undefined || this.#outcome === "completed") this.#outcome = "slow_consumer";
    this.#stopTunnel("slow_consumer");
    this.res.destroy();
  }

  #stopTunnel(reason: string): void {
    const tunnel = this.#tunnel;
    this.#tunnel = undefined;
    tunnel?.cancel(reason);
  }
}

function flushHead(exchange: Exchange): void {
  exchange.flushHead();
}
