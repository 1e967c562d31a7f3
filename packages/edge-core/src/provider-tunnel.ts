import type {
  Clock,
  ProviderTunnelFrame,
  ProviderTunnelRequest,
  Session,
  StreamEnd,
  StreamListener,
  StreamMessage,
  Usage as WireUsage,
  WireStream,
} from "@iop/wire";
import { ProviderTunnelFrame_Kind as Kind, WireError } from "@iop/wire";

import type { QueueWait } from "./edge-error.ts";
import type { ProviderTunnel, RunDispatch, TunnelFrame, Usage } from "./edge-service.ts";
import type { RunOutcomeEvent } from "./event-bus.ts";
import { invalidHeader } from "./header-check.ts";
import type { RelayedBytes } from "./relayed-bytes.ts";
import type { Lease } from "./resource.ts";

type TunnelResult = IteratorResult<TunnelFrame, undefined>;
type Outcome = Pick<RunOutcomeEvent, "outcome" | "code">;

const OVER: TunnelResult = { done: true, value: undefined };
const COMPLETED: Outcome = { outcome: "completed" };
const CANCELLED: Outcome = { outcome: "cancelled" };

/** Codes by which a Node says that nothing of the work ran. */
const REFUSALS: ReadonlySet<string> = new Set([
  "capacity_exhausted",
  "node_draining",
  "provider_unreachable",
]);

/** How a tunnel ended, for its `over`. */
export interface TunnelOutcome extends Outcome {
  readonly status: number | undefined;
  readonly usage: Usage | undefined;
  /** When the first bytes of the body were handed over, on the tunnel's clock. */
  readonly firstByteAt: number | undefined;
  /** When the provider's work had stopped, on the tunnel's clock. */
  readonly endedAt: number;
}

/** A tunnel over a stream of the wire. It is its stream's listener, and so the one that returns the lease. */
export class StreamTunnel implements ProviderTunnel, StreamListener, AsyncIterator<TunnelFrame, undefined> {
  readonly dispatch: RunDispatch;
  readonly queue: QueueWait;
  readonly #stream: WireStream;
  readonly #lease: Lease;
  readonly #clock: Clock;
  readonly #signal: AbortSignal | undefined;
  readonly #relayed: RelayedBytes;
  readonly #stopped: () => void;
  readonly #over: (outcome: TunnelOutcome) => void;
  /** The consumer has had its terminal, or has left. */
  #done = false;
  #status: number | undefined;
  #usage: Usage | undefined;
  #outcome: Outcome | undefined;
  #firstByteAt: number | undefined;
  #endedAt: number | undefined;
  #reported = false;
  #accepted = false;
  #refused = false;
  /** The first frame, once `begin` has seen it and until the consumer asks. */
  #first: TunnelResult | undefined;

  /** Opens the stream; `parts` is the body where it is not in the request. Throws as `Session.open`; the lease is then still the caller's. */
  constructor(options: {
    readonly session: Session;
    readonly request: ProviderTunnelRequest;
    readonly parts: readonly Uint8Array[];
    readonly dispatch: RunDispatch;
    readonly queue: QueueWait;
    readonly lease: Lease;
    readonly clock: Clock;
    readonly signal: AbortSignal | undefined;
    readonly relayed: RelayedBytes;
    /** The provider's work has stopped or is out of reach; once, after the lease is returned. */
    readonly stopped: () => void;
    /** The outcome is known and the work has stopped; once. */
    readonly over: (outcome: TunnelOutcome) => void;
  }) {
    this.dispatch = options.dispatch;
    this.queue = options.queue;
    this.#lease = options.lease;
    this.#clock = options.clock;
    this.#signal = options.signal;
    this.#relayed = options.relayed;
    this.#stopped = options.stopped;
    this.#over = options.over;
    this.#stream = options.session.open(
      { case: "providerTunnelRequest", value: options.request },
      options.parts,
      this,
    );
    this.#signal?.addEventListener("abort", this.#withdraw);
  }

  /** Resolves when the first frame is here; the consumer still gets it. */
  async begin(): Promise<void> {
    this.#first = await this.next();
  }

  /** Whether nothing of the work ran, so that it may be sent elsewhere. */
  get retryable(): boolean {
    // The terminal may have come right behind a start that nobody had taken yet.
    return this.#refused && this.#first?.value?.kind === "error";
  }

  /** The tunnel goes to its consumer: its outcome counts. */
  accept(): void {
    this.#accepted = true;
    this.#report();
  }

  cancel(reason: string): void {
    // Once the work has stopped by itself, what it sent is the answer.
    if (this.#endedAt !== undefined) return;
    this.#decide(CANCELLED);
    this.#stream.cancel(reason);
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  next(): Promise<TunnelResult> {
    const first = this.#first;
    if (first !== undefined) {
      this.#first = undefined;
      return Promise.resolve(first);
    }
    if (this.#done) return Promise.resolve(OVER);
    return this.#stream.next().then(this.#received, this.#failed);
  }

  return(): Promise<TunnelResult> {
    this.#first = undefined;
    if (!this.#done) {
      this.#done = true;
      this.#decide(CANCELLED);
      this.#stream.cancel("the consumer stopped");
    }
    return Promise.resolve(OVER);
  }

  // -------------------------------------------------------------------------------------------
  // For the stream

  closed(end: StreamEnd): void {
    this.#signal?.removeEventListener("abort", this.#withdraw);
    switch (end.cause) {
      case "terminal":
        this.#refused = this.#status === undefined && end.error === undefined && isRefusal(end.terminal);
        if (this.#refused) this.#lease.refused();
        else this.#lease.release();
        break;
      case "unsent":
        this.#lease.release();
        break;
      case "cancel_timeout":
        this.#lease.quarantine();
        break;
      case "connection":
        // Its generation's fence, which is part of the same turn, has returned the lease or will: returned
        // here it would make room on a resource that is about to go offline (spec rule 3).
        this.#refused = !end.sent;
        break;
    }
    this.#endedAt = this.#clock.now();
    if (end.cause === "connection") this.#decide({ outcome: "error", code: "node_disconnected" });
    else if (end.cause !== "terminal" || end.error?.code === "cancelled") this.#decide(CANCELLED);
    this.#stopped();
    this.#report();
  }

  settled(): void {
    this.#lease.release();
  }

  // -------------------------------------------------------------------------------------------

  readonly #withdraw = (): void => {
    this.cancel("withdrawn by the caller");
  };

  // One of these two for each frame: kept as fields, so that a frame costs no closure.
  readonly #received = (result: IteratorResult<StreamMessage, undefined>): TunnelResult => {
    if (result.done === true) return this.#end("protocol_error", "the response ended without a terminal");
    const { value: message } = result;
    if (message.case !== "providerTunnelFrame") return this.#broken(`${message.case} in a response`);
    return this.#frame(message.value);
  };

  readonly #failed = (error: unknown): TunnelResult => {
    if (!WireError.is(error)) return this.#end("internal", "internal error");
    const { nodeId } = this.dispatch;
    switch (error.code) {
      case "cancelled":
        return this.#end("cancelled", "cancelled");
      case "stream_protocol_error":
        return this.#end("protocol_error", `node ${nodeId} broke the order of the response`);
      case "connection_lost":
      case "going_away":
      case "heartbeat_timeout":
      case "frame_too_large":
      case "protocol_error":
      case "flow_control":
      case "closed":
        return this.#end("node_disconnected", `the connection to node ${nodeId} was lost`);
      default:
        return this.#end("internal", "internal error");
    }
  };

  #frame(frame: ProviderTunnelFrame): TunnelResult {
    switch (frame.kind) {
      case Kind.BODY:
        this.#firstByteAt ??= this.#clock.now();
        this.#relayed.response += frame.body.length;
        return { done: false, value: { kind: "body", body: frame.body } };
      case Kind.RESPONSE_START: {
        const headers = frame.headers.map(({ name, value }) => [name, value] as const);
        const wrong = invalidHeader(headers);
        if (wrong !== undefined) return this.#broken(`header ${wrong} cannot be carried`);
        if (frame.status < 100 || frame.status > 999) return this.#broken(`status ${frame.status}`);
        this.#status = frame.status;
        return { done: false, value: { kind: "start", status: frame.status, headers } };
      }
      case Kind.USAGE:
        this.#usage = usageOf(frame.usage);
        return { done: false, value: { kind: "usage", usage: this.#usage } };
      case Kind.END:
        this.#done = true;
        this.#decide(COMPLETED);
        return { done: false, value: { kind: "end" } };
      case Kind.ERROR:
        return this.#end(frame.errorCode === "" ? "provider_error" : frame.errorCode, frame.errorMessage);
      default:
        return this.#broken(`frame of kind ${frame.kind}`);
    }
  }

  /** The Node sent what cannot be relayed: the work is stopped. */
  #broken(what: string): TunnelResult {
    const result = this.#end(
      "protocol_error",
      `node ${this.dispatch.nodeId} sent what cannot be relayed: ${what}`,
    );
    this.#stream.cancel("protocol_error");
    return result;
  }

  #end(code: string, message: string): TunnelResult {
    this.#done = true;
    this.#decide(code === "cancelled" ? CANCELLED : { outcome: "error", code });
    return { done: false, value: { kind: "error", code, message } };
  }

  /** The first one holds. */
  #decide(outcome: Outcome): void {
    if (this.#outcome !== undefined) return;
    this.#outcome = outcome;
    this.#report();
  }

  /** Once the work has stopped and the outcome is known, whichever comes last. */
  #report(): void {
    if (this.#endedAt === undefined || this.#outcome === undefined) return;
    if (this.#reported || !this.#accepted) return;
    this.#reported = true;
    this.#over({
      ...this.#outcome,
      status: this.#status,
      usage: this.#usage,
      // A consumer may take it only after the work has stopped.
      firstByteAt: this.#firstByteAt === undefined ? undefined : Math.min(this.#firstByteAt, this.#endedAt),
      endedAt: this.#endedAt,
    });
  }
}

function isRefusal(terminal: StreamMessage | undefined): boolean {
  return terminal?.case === "providerTunnelFrame" && REFUSALS.has(terminal.value.errorCode);
}

function usageOf(usage: WireUsage | undefined): Usage {
  return {
    ...(usage?.inputTokens === undefined ? {} : { inputTokens: Number(usage.inputTokens) }),
    ...(usage?.outputTokens === undefined ? {} : { outputTokens: Number(usage.outputTokens) }),
    ...(usage?.reasoningTokens === undefined ? {} : { reasoningTokens: Number(usage.reasoningTokens) }),
    ...(usage?.cachedInputTokens === undefined ? {} : { cachedInputTokens: Number(usage.cachedInputTokens) }),
    ...(usage?.partial === true ? { partial: true } : {}),
  };
}
