import { RuntimeError } from "@iop/agent-runtime";
import type { UsageObserver } from "@iop/provider-protocols";
import type { Dispatcher } from "undici";
import type { Dispatched, ProviderConnections } from "./provider-connections.ts";
import { ResponseBody } from "./response-body.ts";
import { toResponseHead, type ResponseHead } from "./response-head.ts";
import type { Route } from "./provider-routes.ts";
import { SilenceTimer } from "./silence-timer.ts";

export interface ExchangeOptions {
  readonly connections: ProviderConnections;
  readonly route: Route;
  /** Name and value alternate. */
  readonly headers: readonly string[];
  /** Chunks of the whole body. */
  readonly body: readonly Uint8Array[];
  readonly signal: AbortSignal;
  /** From the start of sending to the first byte of the response's body, in milliseconds; 0: no limit. */
  readonly firstByteTimeoutMs: number;
  /** Between two chunks while we read, in milliseconds; 0: no limit. */
  readonly idleTimeoutMs: number;
  /** Makes what watches the body pass. */
  readonly observe: (head: ResponseHead) => UsageObserver;
}

/** A response whose head has arrived. */
export interface ExchangeResponse {
  readonly head: ResponseHead;
  readonly body: ResponseBody;
  readonly observer: UsageObserver;
}

/** `pending`: not sent. `sent`: sending has begun. `streaming`: the response's head is here. `over`: no more to come. */
type Phase = "pending" | "sent" | "streaming" | "over";

/**
 * One HTTP exchange with a provider, on the HTTP client's handler interface: no stream object stands between
 * the parser and our queue. Bytes pass as they are; redirects are not followed, nothing is retried.
 */
export class Exchange {
  readonly #options: ExchangeOptions;
  readonly #silence = new SilenceTimer();
  readonly #response = Promise.withResolvers<ExchangeResponse>();
  readonly #onAbort = (): void => void this.#cancel();
  readonly #body = new ResponseBody({
    resume: () => this.#resume(),
    abandon: () => this.#cancel(),
  });
  #phase: Phase = "pending";
  #controller: Dispatcher.DispatchController | undefined;
  #dispatched: Dispatched | undefined;
  #head: ResponseHead | undefined;
  #observer: UsageObserver | undefined;
  #firstByte = true;
  #stopping: Promise<void> | undefined;

  constructor(options: ExchangeOptions) {
    this.#options = options;
  }

  /** Whether sending has begun, so that the provider may have started work. */
  get sent(): boolean {
    return this.#controller !== undefined;
  }

  /**
   * Sends the request; resolves with the response when its head has arrived. To be called once.
   * @throws RuntimeError `provider_unreachable`, `provider_unavailable`, `provider_error`,
   * `first_byte_timeout`, `cancelled`; the body throws `provider_stream_cut`, `first_byte_timeout`,
   * `idle_timeout`, `cancelled`. Whatever is thrown, the connection is closed by then.
   */
  run(): Promise<ExchangeResponse> {
    const { connections, route, headers, body, signal } = this.#options;
    if (signal.aborted) {
      this.#phase = "over";
      this.#response.reject(cancelled());
      return this.#response.promise;
    }
    signal.addEventListener("abort", this.#onAbort);
    this.#dispatched = connections.dispatch(
      { method: route.method, path: route.path, headers: [...headers], body: payload(body) },
      {
        onRequestStart: (controller) => this.#started(controller),
        onResponseStart: (controller, status) => this.#answered(controller, status),
        onResponseData: (_controller, chunk) => this.#data(chunk),
        onResponseEnd: () => this.#ended(),
        onResponseError: (_controller, error) => this.#failed(error),
      },
    );
    return this.#response.promise;
  }

  #started(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.#phase !== "pending") {
      controller.abort(cancelled());
      return;
    }
    this.#phase = "sent";
    const { firstByteTimeoutMs } = this.#options;
    this.#silence.watch(firstByteTimeoutMs, () => {
      const text = `the provider sent no byte of its answer's body within ${firstByteTimeoutMs} ms`;
      void this.#stop(new RuntimeError("first_byte_timeout", text));
    });
  }

  #answered(controller: Dispatcher.DispatchController, status: number): void {
    // Interim responses are for this hop.
    if (status < 200 || this.#phase !== "sent") return;
    this.#phase = "streaming";
    const head = toResponseHead(status, controller.rawHeaders);
    const observer = this.#options.observe(head);
    this.#head = head;
    this.#observer = observer;
    this.#response.resolve({ head, body: this.#body, observer });
  }

  #data(chunk: Uint8Array): void {
    if (this.#phase !== "streaming") return;
    if (this.#firstByte) {
      this.#firstByte = false;
      this.#watchIdle();
    } else this.#silence.touch();
    this.#observer?.observe(chunk);
    if (this.#body.push(chunk)) return;
    this.#controller?.pause();
    this.#silence.suspend();
  }

  #watchIdle(): void {
    const { idleTimeoutMs } = this.#options;
    this.#silence.watch(idleTimeoutMs, () => {
      const text = `the provider was silent for ${idleTimeoutMs} ms`;
      void this.#stop(new RuntimeError("idle_timeout", text));
    });
  }

  #resume(): void {
    if (this.#phase !== "streaming") return;
    this.#silence.resume();
    this.#controller?.resume();
  }

  #ended(): void {
    if (this.#phase === "over") return;
    // The client takes a reset for the end of a body that only the connection's end delimits.
    const cut = this.#head?.closeDelimited === true && this.#options.connections.failing;
    this.#finish(!cut);
    this.#body.end(cut ? streamCut("ECONNRESET") : undefined);
  }

  #failed(error: Error): void {
    const phase = this.#phase;
    if (phase === "over") return;
    this.#finish(false);
    if (phase === "streaming") this.#body.end(streamCut(reasonOf(error)));
    else this.#response.reject(phase === "sent" ? afterSending(error) : this.#beforeSending(error));
  }

  #cancel(): Promise<void> {
    this.#body.drop();
    return this.#stop(cancelled());
  }

  /** Ends the exchange from our side. Resolves when its connection is closed; at once where it was over. */
  async #stop(failure: RuntimeError): Promise<void> {
    if (this.#phase !== "over") this.#stopping = this.#close(failure);
    await this.#stopping;
  }

  async #close(failure: RuntimeError): Promise<void> {
    const phase = this.#phase;
    this.#finish(false);
    if (this.#controller === undefined) this.#dispatched?.abandon();
    else this.#controller.abort(failure);
    await this.#options.connections.destroyedClosed();
    if (phase === "streaming") this.#body.end(failure);
    else this.#response.reject(failure);
  }

  #finish(clean: boolean): void {
    this.#phase = "over";
    this.#silence.stop();
    this.#options.signal.removeEventListener("abort", this.#onAbort);
    this.#observer?.end(clean);
  }

  #beforeSending(error: Error): RuntimeError {
    const reason = reasonOf(error);
    if (reason === "UND_ERR_DESTROYED" || reason === "UND_ERR_CLOSED")
      return new RuntimeError("provider_unavailable", "the provider has been stopped");
    if (reason === "UND_ERR_INVALID_ARG" || reason === "UND_ERR_NOT_SUPPORTED")
      return new RuntimeError("internal", "the HTTP client does not take the request", { cause: error });
    return new RuntimeError("provider_unreachable", `cannot connect to the provider (${reason})`, {
      cause: error,
    });
  }
}

function cancelled(): RuntimeError {
  return new RuntimeError("cancelled", "cancelled");
}

// Without the cause: the error of a parser holds a piece of the answer, and would be logged with it.
function afterSending(error: Error): RuntimeError {
  return new RuntimeError("provider_error", `the provider did not answer (${reasonOf(error)})`);
}

function streamCut(reason: string): RuntimeError {
  return new RuntimeError("provider_stream_cut", `the provider's answer was cut (${reason})`);
}

function reasonOf(error: Error): string {
  return "code" in error && typeof error.code === "string" ? error.code : error.name;
}

/** In one piece: the HTTP client then sends it with its length, in one go with the head. */
function payload(body: readonly Uint8Array[]): Uint8Array | null {
  const [only] = body;
  if (only === undefined) return null;
  return body.length === 1 ? only : Buffer.concat(body);
}
