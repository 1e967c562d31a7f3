import type { Timer } from "./clock.ts";
import { MAX_HEAD_FRAME_BYTES, MAX_TERMINAL_FRAME_BYTES } from "./flow-limits.ts";
import type { FrameWriter } from "./frame-writer.ts";
import { ProviderTunnelFrame_Kind as Kind } from "./gen/iop/runtime_pb.ts";
import { InboundQueue } from "./inbound-queue.ts";
import type { OpeningMessage, StreamMessage } from "./message.ts";
import { isTerminal } from "./message.ts";
import { OutboundQueue } from "./outbound-queue.ts";
import { TunnelOrder } from "./tunnel-order.ts";
import { WireError } from "./wire-error.ts";

/** How a stream ended for its opener. */
export interface StreamEnd {
  /**
   * `terminal`: the peer's END or ERROR came; after a cancel it says that the work has stopped.
   * `unsent`: cancelled before anything of it was sent; nothing can have run.
   * `connection`: the connection was lost.
   * `cancel_timeout`: cancelled, and no terminal came in time; the work may still be running.
   */
  readonly cause: "terminal" | "unsent" | "connection" | "cancel_timeout";
  readonly error?: WireError;
  /** The terminal, where one came. */
  readonly terminal?: StreamMessage;
  /** False where nothing of the stream had been sent, so that nothing can have run. */
  readonly sent: boolean;
}

/** What the opener of a stream wants to be told. Neither callback may throw. */
export interface StreamListener {
  /** The stream is over; called exactly once. */
  closed?(end: StreamEnd): void;
  /** After a `closed` with `cancel_timeout`: the late terminal has come, or the connection has ended. */
  settled?(): void;
}

/** One piece of work on a connection: messages in order both ways, under credit, with one terminal. */
export interface WireStream extends AsyncIterable<StreamMessage> {
  readonly id: number;
  /** Fires when the stream is cancelled (by either side) or its connection is lost; the reason is a WireError. */
  readonly signal: AbortSignal;
  /**
   * Queues a message; a tunnel frame gets its sequence here. After the terminal, or once the stream is
   * over, it is dropped. False where over 64 KiB are queued: await `drained` before sending more.
   * @throws WireError `invalid_argument` where a head is over 64 KiB or a terminal over 16 KiB.
   */
  send(message: StreamMessage): boolean;
  /** Queues bytes of a tunnel's body, by reference; cut into frames as they leave. As `send` otherwise. */
  sendBody(bytes: Uint8Array): boolean;
  /** Resolves below 32 KiB queued, or when the stream is over. */
  drained(): Promise<void>;
  /**
   * The messages that come, up to and with the terminal. Asking for one says that the one before has been
   * taken: that returns its credit. Fails with the WireError that ended the stream. For one reader.
   */
  next(): Promise<IteratorResult<StreamMessage, undefined>>;
  /** Stops the work at the peer, at zero credit too. Idempotent; harmless when over. */
  cancel(reason: string): void;
}

/** What a stream needs of its connection. */
export interface StreamHost {
  readonly role: "edge" | "node";
  readonly windowBytes: number;
  /** `stream` has something that may be sent. */
  ready(stream: MuxStream): void;
  /** Credit of `stream` is to be granted. */
  grant(stream: MuxStream): void;
  /** A CancelRequest is to be sent. */
  sendCancel(stream: MuxStream): void;
  /** `stream` is over on this side. */
  remove(stream: MuxStream): void;
  cancelTimer(callback: () => void): Timer;
  /** A frame or terminal that came too late and was dropped. */
  countLate(): void;
}

/** The implementation: the state of a stream between its two queues; what is below `next` is the multiplexer's. */
export class MuxStream implements WireStream {
  readonly id: number;
  readonly #host: StreamHost;
  readonly #listener: StreamListener | undefined;
  readonly #outbound: OutboundQueue;
  readonly #inbound: InboundQueue;
  readonly #order: TunnelOrder | undefined;
  /** open: works. cancelling: told the peer, waiting for its terminal. abandoned: waited too long. */
  #state: "open" | "cancelling" | "abandoned" | "closed" = "open";
  #failure: WireError | undefined;
  #abort: AbortController | undefined;
  #cancelTimer: Timer | undefined;
  #sentTerminal = false;
  /** Whether the round robin holds it. */
  scheduled = false;
  cancelReason = "";

  constructor(id: number, host: StreamHost, opening: OpeningMessage | undefined, listener?: StreamListener) {
    this.id = id;
    this.#host = host;
    this.#listener = listener;
    this.#outbound = new OutboundQueue(id, host.windowBytes);
    this.#inbound = new InboundQueue(host.windowBytes, () => this.#host.grant(this));
    this.#order = host.role === "edge" ? new TunnelOrder() : undefined;
    if (opening !== undefined) {
      this.#outbound.pushMessage(opening);
      host.ready(this);
    }
  }

  get signal(): AbortSignal {
    this.#abort ??= new AbortController();
    if (this.#failure !== undefined && !this.#abort.signal.aborted) this.#abort.abort(this.#failure);
    return this.#abort.signal;
  }

  send(message: StreamMessage): boolean {
    if (message.case === "providerTunnelFrame" && message.value.kind === Kind.BODY)
      return this.sendBody(message.value.body);
    const terminal = isTerminal(message);
    if (!this.#maySend(terminal)) return true;
    this.#outbound.pushMessage(message);
    if (terminal) this.#sentTerminal = true;
    this.#host.ready(this);
    return !this.#outbound.full;
  }

  sendBody(bytes: Uint8Array): boolean {
    if (bytes.length > 0) {
      if (!this.#maySend(false)) return true;
      this.#outbound.pushBody(bytes);
      this.#host.ready(this);
    }
    return !this.#outbound.full;
  }

  /** Queues a request body behind the opening, by reference, cut into Parts as they leave. */
  sendParts(chunks: readonly Uint8Array[]): void {
    this.#outbound.pushParts(chunks);
    this.#host.ready(this);
  }

  drained(): Promise<void> {
    return this.#outbound.drained();
  }

  cancel(reason: string): void {
    if (this.#state !== "open") return;
    if (this.#host.role === "node")
      throw new WireError("invalid_argument", "only the opener cancels a stream; send a terminal");
    this.#fail(new WireError("cancelled", reason));
    this.#stopPeer(reason);
  }

  next(): Promise<IteratorResult<StreamMessage, undefined>> {
    return this.#inbound.next();
  }

  [Symbol.asyncIterator](): AsyncIterator<StreamMessage, undefined> {
    return {
      next: () => this.next(),
      return: () => {
        if (this.#host.role === "edge") this.cancel("the reader stopped");
        return Promise.resolve({ done: true, value: undefined });
      },
    };
  }

  // -------------------------------------------------------------------------------------------
  // For the multiplexer

  /** A message arrived whose frame cost `charge`. */
  receive(message: StreamMessage, charge: number): void {
    const charged = isCharged(message);
    if (charged && !this.#inbound.receive(charge)) {
      this.#violated("over its stream window");
      return;
    }
    const terminal = isTerminal(message);
    const wrong = this.#state === "open" && this.#host.role === "edge" && this.#misplaced(message, charge);
    if (typeof wrong === "string") this.#violated(wrong);
    else if (this.#failure === undefined) this.#inbound.deliver(message, charged ? charge : 0);
    // A terminal says that the peer has stopped, whatever became of the stream here.
    if (terminal) {
      const error = this.#failure === undefined ? {} : { error: this.#failure };
      this.#settle({ cause: "terminal", sent: true, terminal: message, ...error });
    }
  }

  /** The peer allows more. */
  allow(limit: number): void {
    this.#outbound.allow(limit);
    if (this.#outbound.pending) this.#host.ready(this);
  }

  /** The opener has cancelled: what is queued is dropped, the terminal is still to be sent. */
  cancelledByPeer(reason: string): void {
    if (this.#failure !== undefined) return;
    this.#fail(new WireError("cancelled", reason));
    // What held a terminal up is gone, and with it what would have brought its turn.
    if (this.#outbound.pending) this.#host.ready(this);
  }

  /** The connection is gone. */
  disconnected(error: WireError): void {
    const sent = this.#outbound.started;
    this.#fail(error);
    this.#settle({ cause: "connection", sent, error });
  }

  /** The limit to send in a StreamCredit. */
  grant(): number {
    return this.#inbound.grant();
  }

  /** As `OutboundQueue.writeNext`. */
  writeNext(writer: FrameWriter, connectionCredit: number): number {
    const terminal = this.#outbound.endsNext;
    const charge = this.#outbound.writeNext(writer, connectionCredit);
    if (terminal && charge > 0) this.#settle({ cause: "terminal", sent: true });
    return charge;
  }

  /** Whether anything of it has left. */
  get started(): boolean {
    return this.#outbound.started;
  }

  /** Whether anything is queued. */
  get pending(): boolean {
    return this.#outbound.pending;
  }

  // -------------------------------------------------------------------------------------------

  // A stream that has failed takes nothing but its terminal.
  #maySend(terminal: boolean): boolean {
    if (!this.#sentTerminal && this.#state === "open" && (terminal || this.#failure === undefined))
      return true;
    this.#host.countLate();
    return false;
  }

  #misplaced(message: StreamMessage, charge: number): string | undefined {
    if (message.case !== "providerTunnelFrame") return `${message.case} on a tunnel`;
    const { kind } = message.value;
    const bound = kind === Kind.RESPONSE_START ? MAX_HEAD_FRAME_BYTES : MAX_TERMINAL_FRAME_BYTES;
    if (kind !== Kind.BODY && charge > bound) return `frame of ${charge} bytes; the limit is ${bound}`;
    return this.#order?.violation(message.value);
  }

  #violated(reason: string): void {
    this.#fail(new WireError("stream_protocol_error", `stream ${this.id}: ${reason}`));
    if (this.#host.role === "edge" && this.#state === "open") this.#stopPeer("protocol_error");
  }

  #stopPeer(reason: string): void {
    if (!this.#outbound.started) {
      this.#settle({ cause: "unsent", sent: false });
      return;
    }
    this.#state = "cancelling";
    this.cancelReason = reason;
    this.#host.sendCancel(this);
    this.#cancelTimer = this.#host.cancelTimer(() => {
      this.#state = "abandoned";
      this.#listener?.closed?.({
        cause: "cancel_timeout",
        sent: true,
        error: new WireError("cancel_timeout", "cancelled, and the peer did not confirm"),
      });
    });
  }

  /** The consumer gets `error` as the end of what it reads; the first one wins. */
  #fail(error: WireError): void {
    if (this.#failure !== undefined || this.#state === "closed") return;
    this.#failure = error;
    this.#inbound.fail(error);
    this.#outbound.drop(this.#host.role === "node");
    this.#abort?.abort(error);
  }

  /** The stream is over; the one place where it ends. */
  #settle(end: StreamEnd): void {
    if (this.#state === "closed") return;
    const abandoned = this.#state === "abandoned";
    this.#state = "closed";
    this.#cancelTimer?.cancel();
    this.#cancelTimer = undefined;
    this.#outbound.drop(false);
    this.#host.remove(this);
    this.#inbound.end();
    if (abandoned) this.#listener?.settled?.();
    else this.#listener?.closed?.(end);
  }
}

// Charged to the stream's credit; everything on a stream is charged to the connection's.
function isCharged(message: StreamMessage): boolean {
  return (
    message.case === "part" || (message.case === "providerTunnelFrame" && message.value.kind === Kind.BODY)
  );
}
