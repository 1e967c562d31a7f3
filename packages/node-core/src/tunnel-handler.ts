import type {
  HeaderList,
  Provider,
  RegisteredProvider,
  TunnelRequest,
  TunnelResponse,
} from "@iop/agent-runtime";
import { RuntimeError } from "@iop/agent-runtime";
import type { Clock, ProviderTunnelRequest, StreamMessage, WireStream } from "@iop/wire";
import { receiveBody, WireError } from "@iop/wire";

import { describeFailure } from "./failure-text.ts";
import type { NodeListeners, NodeTunnelOutcome } from "./node-listeners.ts";
import type { ProviderSet } from "./provider-set.ts";
import { endFrame, errorFrame, headersFault, headFault, startFrame, usageFrame } from "./tunnel-frames.ts";

/** What a terminal ERROR says. */
interface TunnelFailure {
  readonly code: string;
  readonly text: string;
}

/** One tunnel that runs: how to stop it, and why it was stopped. */
class TunnelWork {
  readonly #abort = new AbortController();
  /** Why it is to stop; the first reason stays. */
  stopped: TunnelFailure | undefined;

  /** Given to the provider. */
  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  stop(failure: TunnelFailure): void {
    this.stopped ??= failure;
    this.release();
  }

  /** Lets the provider close what it holds; the outcome stays what it is. */
  release(): void {
    if (!this.#abort.signal.aborted)
      this.#abort.abort(new RuntimeError("cancelled", this.stopped?.text ?? "the exchange is over"));
  }

  throwIfStopped(): void {
    if (this.stopped !== undefined) throw new RuntimeError("cancelled", this.stopped.text);
  }
}

/**
 * Serves tunnels: request body, place in the provider's gate, the provider's answer as frames, and exactly
 * one terminal, sent after the provider's work has stopped and its place is free again. Knows nothing of
 * sessions: a tunnel ends with its stream.
 */
export class TunnelHandler {
  readonly #providers: ProviderSet;
  readonly #heldBodyBytes: number;
  readonly #clock: Clock;
  readonly #ended: NodeListeners["tunnel"];
  readonly #running = new Set<TunnelWork>();
  #held = 0;
  #refusal: TunnelFailure | undefined;

  constructor(options: {
    readonly providers: ProviderSet;
    /** Request bodies held at once, in bytes. */
    readonly heldBodyBytes: number;
    readonly clock: Clock;
    /** Told of each tunnel that is over. */
    readonly ended?: NodeListeners["tunnel"];
  }) {
    this.#providers = options.providers;
    this.#heldBodyBytes = options.heldBodyBytes;
    this.#clock = options.clock;
    this.#ended = options.ended;
  }

  /** Tunnels whose work has not ended. */
  get running(): number {
    return this.#running.size;
  }

  /** Serves one stream to its end. `bodyBytes` is the longest request body. */
  handle(stream: WireStream, request: ProviderTunnelRequest, bodyBytes: number): void {
    if (this.#refusal === undefined) void this.#serve(stream, request, bodyBytes);
    else refuse(stream, this.#refusal.code, this.#refusal.text);
  }

  /** From now on new tunnels are refused; those that run go on. */
  close(code: string, text: string): void {
    this.#refusal ??= { code, text };
  }

  /** Stops all that runs; each still gets its terminal, with this code and text. */
  stop(code: string, text: string): void {
    for (const work of this.#running) work.stop({ code, text });
  }

  async #serve(stream: WireStream, request: ProviderTunnelRequest, bodyBytes: number): Promise<void> {
    const startedAt = this.#clock.now();
    const work = new TunnelWork();
    this.#running.add(work);
    stream.signal.addEventListener("abort", () => {
      const reason: unknown = stream.signal.reason;
      work.stop({ code: "cancelled", text: WireError.is(reason) ? reason.message : "cancelled" });
    });
    let terminal: StreamMessage;
    let code: string | undefined;
    try {
      await this.#exchange(work, stream, request, bodyBytes);
      terminal = endFrame();
    } catch (error) {
      const failure = work.stopped ?? failureOf(error);
      work.release();
      terminal = errorFrame(failure.code, failure.text);
      code = failure.code;
    }
    this.#running.delete(work);
    stream.send(terminal);
    this.#ended?.({
      requestId: request.requestId,
      provider: request.providerId,
      operation: request.operation,
      ...outcomeOf(code),
      durationMs: this.#clock.now() - startedAt,
    });
  }

  async #exchange(
    work: TunnelWork,
    stream: WireStream,
    request: ProviderTunnelRequest,
    bodyBytes: number,
  ): Promise<void> {
    // A change of the configuration meanwhile does not stop it: the instance stays for as long as it is in use.
    using use = this.#providers.use(request.providerId);
    const { registered } = use;
    if (!serves(registered, request.operation)) {
      throw new RuntimeError(
        "unsupported_operation",
        `provider ${registered.id} does not serve ${JSON.stringify(request.operation)}`,
      );
    }
    const headers = toHeaders(request);
    const length = Math.max(Number(request.bodyLength), request.body.length);
    if (length > bodyBytes)
      throw new RuntimeError("body_too_large", `body of ${length} bytes; the limit is ${bodyBytes}`);
    if (this.#held + length > this.#heldBodyBytes) {
      throw new RuntimeError("capacity_exhausted", `this node holds ${this.#held} bytes of request bodies`);
    }
    this.#held += length;
    try {
      const body = await receiveBody(stream, {
        head: request.body,
        lengthBytes: length,
        limitBytes: bodyBytes,
      });
      work.throwIfStopped();
      const permit = use.admit();
      try {
        await relay(work, stream, registered.provider, toTunnelRequest(request, headers, body));
      } catch (error) {
        if (RuntimeError.is(error) && error.code === "provider_unreachable")
          this.#providers.recheck(registered.id);
        throw error;
      } finally {
        permit.release();
      }
    } finally {
      this.#held -= length;
    }
  }
}

function outcomeOf(code: string | undefined): Pick<NodeTunnelOutcome, "outcome" | "code"> {
  if (code === undefined) return { outcome: "completed" };
  return code === "cancelled" ? { outcome: "cancelled" } : { outcome: "error", code };
}

/** Refuses a stream that was just opened; nothing ran. */
export function refuse(stream: WireStream, code: string, text: string): void {
  stream.send(errorFrame(code, text));
}

async function relay(
  work: TunnelWork,
  stream: WireStream,
  provider: Provider,
  request: TunnelRequest,
): Promise<void> {
  const { signal } = work;
  const response = await provider.tunnel?.(request, { signal });
  if (response === undefined) throw new RuntimeError("unsupported_operation", "the provider has no tunnel");
  const body = response.body[Symbol.asyncIterator]();
  let ended = false;
  try {
    work.throwIfStopped();
    const fault = headFault(response);
    if (fault !== undefined) throw new RuntimeError("provider_error", `the provider's answer: ${fault}`);
    sendStart(stream, response);
    for (;;) {
      const step = await body.next();
      if (step.done === true) break;
      if (!stream.sendBody(step.value)) await stream.drained();
      if (signal.aborted) work.throwIfStopped();
    }
    ended = true;
  } finally {
    if (!ended) {
      // First the signal: a generator that was never started does not see `return`.
      work.release();
      await discard(body);
    }
    if (work.stopped === undefined) reportUsage(stream, response);
  }
}

/** Whether `tunnel` accepts the operation; an empty one leaves it to the provider, which looks at the path. */
function serves({ provider, capabilities }: RegisteredProvider, operation: string): boolean {
  if (provider.tunnel === undefined) return false;
  return operation === "" || capabilities.operations.includes(operation);
}

function sendStart(stream: WireStream, response: TunnelResponse): void {
  try {
    stream.send(startFrame(response));
  } catch (error) {
    throw new RuntimeError("provider_error", "the provider's answer: its headers are over 64 KiB", {
      cause: error,
    });
  }
}

function reportUsage(stream: WireStream, response: TunnelResponse): void {
  try {
    const usage = usageFrame(response.usage());
    if (usage !== undefined) stream.send(usage);
  } catch {
    // An observation; its failure is not the request's.
  }
}

async function discard(body: AsyncIterator<Uint8Array>): Promise<void> {
  try {
    await body.return?.();
  } catch {
    // What went wrong before is what counts.
  }
}

function toHeaders(request: ProviderTunnelRequest): HeaderList {
  const headers = request.headers.map(({ name, value }) => [name, value] as const);
  const fault = headersFault(headers);
  if (fault !== undefined) throw new RuntimeError("invalid_request", `the request's headers: ${fault}`);
  return headers;
}

function toTunnelRequest(
  request: ProviderTunnelRequest,
  headers: HeaderList,
  body: Uint8Array,
): TunnelRequest {
  return {
    requestId: request.requestId,
    operation: request.operation,
    method: request.method,
    path: request.path,
    headers,
    body: body.length === 0 ? [] : [body],
    target: request.target,
    firstByteTimeoutMs: request.firstByteTimeoutMs,
    idleTimeoutMs: request.idleTimeoutMs,
  };
}

function failureOf(error: unknown): TunnelFailure {
  if (RuntimeError.is(error) || WireError.is(error)) return { code: error.code, text: error.message };
  return { code: "internal", text: describeFailure(error) };
}
