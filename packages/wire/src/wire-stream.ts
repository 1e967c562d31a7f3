import { ProviderTunnelFrame_Kind as Kind } from "./gen/iop/runtime_pb.ts";
import { BodyBuffer, retain } from "./body-buffer.ts";
import type { Timer } from "./clock.ts";
import { ReceiveCredit, SendCredit } from "./credit.ts";
import { encodeFrame } from "./envelope-codec.ts";
import { MAX_BODY_BYTES, MAX_HEAD_FRAME_BYTES, MAX_TERMINAL_FRAME_BYTES } from "./flow-limits.ts";
import type { FrameWriter } from "./frame-writer.ts";
import { partLength, tunnelBody, tunnelBodyLength, writePartHead, writeTunnelBodyHead } from "./hot-codec.ts";
import type { OpeningMessage, StreamMessage } from "./message.ts";
import { isOpening } from "./message.ts";
import { TunnelOrder, isTerminalKind } from "./tunnel-order.ts";
import { WireError } from "./wire-error.ts";

/** A producer is asked to wait at this many queued bytes, in bytes. */
const PAUSE_BYTES = 64 * 1024;
/** ... and to go on below this many. */
const RESUME_BYTES = 32 * 1024;
const PREFIX_BYTES = 4;

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

type Outbound =
  | { readonly kind: "message"; readonly message: StreamMessage; frame: Uint8Array | undefined }
  | { readonly kind: "body"; readonly body: BodyBuffer }
  | { readonly kind: "parts"; readonly chunks: readonly Uint8Array[]; index: number; at: number };

interface Inbound {
  readonly message: StreamMessage;
  readonly body: BodyBuffer | undefined;
  charge: number;
}

interface Waiter<T> {
  resolve(value: T): void;
  reject(error: unknown): void;
}

/** The implementation; everything below `next` is for the multiplexer. */
export class MuxStream implements WireStream {
  readonly id: number;
  readonly #host: StreamHost;
  readonly #listener: StreamListener | undefined;
  /** open: works. cancelling: told the peer, waiting for its terminal. abandoned: waited too long. */
  #state: "open" | "cancelling" | "abandoned" | "closed" = "open";
  #failure: WireError | undefined;
  #abort: AbortController | undefined;
  #cancelTimer: Timer | undefined;
  cancelReason = "";

  #outbound: Outbound[] = [];
  #queued = 0;
  #sequence = 0;
  #sentOpening: boolean;
  #sentTerminal = false;
  readonly #sendCredit: SendCredit;
  #drained: Array<() => void> | undefined;
  /** Whether the round robin holds it. */
  scheduled = false;

  #inbound: Inbound[] = [];
  #taken = 0;
  #waiter: Waiter<IteratorResult<StreamMessage, undefined>> | undefined;
  #ended = false;
  readonly #receiveCredit: ReceiveCredit;
  readonly #order: TunnelOrder | undefined;

  constructor(id: number, host: StreamHost, opening: OpeningMessage | undefined, listener?: StreamListener) {
    this.id = id;
    this.#host = host;
    this.#listener = listener;
    this.#sendCredit = new SendCredit(host.windowBytes);
    this.#receiveCredit = new ReceiveCredit(host.windowBytes, 2);
    this.#order = host.role === "edge" ? new TunnelOrder() : undefined;
    this.#sentOpening = opening === undefined;
    if (opening !== undefined) this.#enqueueMessage(opening);
  }

  get signal(): AbortSignal {
    this.#abort ??= new AbortController();
    if (this.#failure !== undefined && !this.#abort.signal.aborted) this.#abort.abort(this.#failure);
    return this.#abort.signal;
  }

  send(message: StreamMessage): boolean {
    if (message.case === "providerTunnelFrame" && message.value.kind === Kind.BODY)
      return this.sendBody(message.value.body);
    if (!this.#maySend(isTerminal(message))) return true;
    this.#enqueueMessage(message);
    return this.#queued < PAUSE_BYTES;
  }

  sendBody(bytes: Uint8Array): boolean {
    if (bytes.length === 0) return this.#queued < PAUSE_BYTES;
    if (!this.#maySend(false)) return true;
    this.#queued += bytes.length;
    const last = this.#outbound.at(-1);
    if (last?.kind !== "body" || !last.body.append(bytes)) {
      const blocked = this.#outbound.length > 0 || this.#sendCredit.available < bytes.length;
      this.#outbound.push({ kind: "body", body: new BodyBuffer(bytes, blocked) });
    }
    this.#host.ready(this);
    return this.#queued < PAUSE_BYTES;
  }

  /** Queues a request body behind the opening, by reference, cut into Parts as they leave. */
  sendParts(chunks: readonly Uint8Array[]): void {
    const filled = chunks.filter((chunk) => chunk.length > 0);
    if (filled.length === 0) return;
    this.#outbound.push({ kind: "parts", chunks: filled, index: 0, at: 0 });
    this.#host.ready(this);
  }

  async drained(): Promise<void> {
    if (this.#queued < PAUSE_BYTES || this.#state !== "open" || this.#failure !== undefined) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    (this.#drained ??= []).push(resolve);
    await promise;
  }

  cancel(reason: string): void {
    if (this.#state !== "open") return;
    if (this.#host.role === "node")
      throw new WireError("invalid_argument", "only the opener cancels a stream; send a terminal");
    this.#fail(new WireError("cancelled", reason));
    this.#stopPeer(reason);
  }

  next(): Promise<IteratorResult<StreamMessage, undefined>> {
    if (this.#taken > 0) {
      const taken = this.#taken;
      this.#taken = 0;
      this.#release(taken);
    }
    const item = this.#inbound.shift();
    if (item !== undefined) {
      this.#taken = item.charge;
      return Promise.resolve({ done: false, value: messageOf(item) });
    }
    if (this.#failure !== undefined && !this.#ended) {
      this.#ended = true;
      return Promise.reject(this.#failure);
    }
    if (this.#ended || this.#state === "closed") return Promise.resolve({ done: true, value: undefined });
    if (this.#waiter !== undefined) throw new WireError("invalid_argument", "a stream has one reader");
    const { promise, resolve, reject } = Promise.withResolvers<IteratorResult<StreamMessage, undefined>>();
    this.#waiter = { resolve, reject };
    return promise;
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

  get closed(): boolean {
    return this.#state === "closed";
  }

  /** A message arrived whose frame cost `charge`. */
  receive(message: StreamMessage, charge: number): void {
    const charged = isCharged(message);
    if (charged && !this.#receiveCredit.receive(charge)) {
      this.#violated("over its stream window");
      return;
    }
    const terminal = isTerminal(message);
    if (this.#host.role === "edge") {
      if (this.#state !== "open") {
        if (terminal) this.#settle({ cause: "terminal", ...(this.#failure ? { error: this.#failure } : {}) });
        return;
      }
      const wrong = this.#misplaced(message, charge);
      if (wrong !== undefined) {
        this.#violated(wrong);
        // A terminal out of order still says that the peer has stopped.
        if (terminal) this.#settle({ cause: "terminal" });
        return;
      }
    } else if (this.#failure !== undefined) return;
    this.#deliver(message, charged ? charge : 0);
    if (terminal) this.#settle({ cause: "terminal" });
  }

  /** The peer allows more. */
  allow(limit: number): void {
    this.#sendCredit.allow(limit);
    if (this.#outbound.length > 0) this.#host.ready(this);
  }

  /** The opener has cancelled: what is queued is dropped, the terminal is still to be sent. */
  cancelledByPeer(reason: string): void {
    if (this.#state !== "open" || this.#failure !== undefined) return;
    this.#outbound = this.#outbound.filter((item) => item.kind === "message" && isTerminal(item.message));
    this.#queued = 0;
    this.#fail(new WireError("cancelled", reason));
  }

  /** The connection is gone. */
  disconnected(error: WireError): void {
    if (this.#state === "closed") return;
    this.#outbound = [];
    this.#queued = 0;
    this.#fail(error);
    this.#settle({ cause: "connection", error });
  }

  /** The limit to send in a StreamCredit. */
  grant(): number {
    return this.#receiveCredit.grant();
  }

  /**
   * Writes the next frame, if its credit allows it and it costs at most `connectionCredit`. Answers its
   * charge; 0: nothing may be sent now for want of stream credit; -1: for want of connection credit.
   */
  writeNext(writer: FrameWriter, connectionCredit: number): number {
    const item = this.#outbound[0];
    if (item === undefined) return 0;
    switch (item.kind) {
      case "message": {
        item.frame ??= this.#encode(item.message);
        const charge = item.frame.length - PREFIX_BYTES;
        if (charge > connectionCredit) return -1;
        writer.push(item.frame);
        this.#outbound.shift();
        this.#sentOpening = true;
        if (isTerminal(item.message)) this.#settle({ cause: "terminal" });
        return charge;
      }
      case "body": {
        const length = Math.min(item.body.length, MAX_BODY_BYTES);
        const charge = tunnelBodyLength(this.id, this.#sequence + 1, length);
        const blocked = this.#blocked(charge, connectionCredit);
        if (blocked !== undefined) return blocked;
        const into = writer.reserve();
        writer.commit(writeTunnelBodyHead(into, writer.offset, this.id, ++this.#sequence, length));
        writer.push(item.body.take(length));
        if (item.body.length === 0) this.#outbound.shift();
        this.#sendCredit.charge(charge);
        this.#dequeued(length);
        return charge;
      }
      case "parts": {
        const chunk = item.chunks[item.index] ?? new Uint8Array(0);
        const length = Math.min(chunk.length - item.at, MAX_BODY_BYTES);
        const ends = item.at + length === chunk.length;
        const last = ends && item.index === item.chunks.length - 1;
        const charge = partLength(this.id, last, length);
        const blocked = this.#blocked(charge, connectionCredit);
        if (blocked !== undefined) return blocked;
        const into = writer.reserve();
        writer.commit(writePartHead(into, writer.offset, this.id, last, length));
        writer.push(chunk.subarray(item.at, item.at + length));
        item.at = ends ? 0 : item.at + length;
        if (ends) item.index++;
        if (last) this.#outbound.shift();
        this.#sendCredit.charge(charge);
        return charge;
      }
    }
  }

  /** Whether anything is queued. */
  get pending(): boolean {
    return this.#outbound.length > 0;
  }

  // -------------------------------------------------------------------------------------------

  #blocked(charge: number, connectionCredit: number): 0 | -1 | undefined {
    if (charge > this.#sendCredit.available) return 0;
    return charge > connectionCredit ? -1 : undefined;
  }

  // A stream that has failed takes nothing but its terminal.
  #maySend(terminal: boolean): boolean {
    if (!this.#sentTerminal && this.#state === "open" && (terminal || this.#failure === undefined))
      return true;
    this.#host.countLate();
    return false;
  }

  #enqueueMessage(message: StreamMessage): void {
    // An END has nothing that could grow. A frame behind bodies is encoded again once its sequence is known.
    const known = message.case !== "providerTunnelFrame" || message.value.kind !== Kind.END;
    const frame = known ? encodeFrame(this.id, message) : undefined;
    if (frame !== undefined) checkHeadLength(message, frame.length - PREFIX_BYTES);
    if (isTerminal(message)) this.#sentTerminal = true;
    this.#outbound.push({
      kind: "message",
      message,
      frame: message.case === "providerTunnelFrame" ? undefined : frame,
    });
    this.#host.ready(this);
  }

  #encode(message: StreamMessage): Uint8Array {
    if (message.case === "providerTunnelFrame") message.value.sequence = ++this.#sequence;
    return encodeFrame(this.id, message);
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
    if (!this.#sentOpening) {
      this.#outbound = [];
      this.#settle({ cause: "unsent" });
      return;
    }
    this.#outbound = [];
    this.#queued = 0;
    this.#state = "cancelling";
    this.cancelReason = reason;
    this.#host.sendCancel(this);
    this.#cancelTimer = this.#host.cancelTimer(() => {
      this.#state = "abandoned";
      this.#listener?.closed?.({
        cause: "cancel_timeout",
        error: new WireError("cancel_timeout", "cancelled, and the peer did not confirm"),
      });
    });
  }

  /** The consumer gets `error` as the end of what it reads; the first one wins. */
  #fail(error: WireError): void {
    if (this.#failure !== undefined || this.#state === "closed") return;
    this.#failure = error;
    this.#inbound = [];
    this.#taken = 0;
    this.#abort?.abort(error);
    this.#wakeProducers();
    const waiter = this.#waiter;
    this.#waiter = undefined;
    if (waiter !== undefined) {
      this.#ended = true;
      waiter.reject(error);
    }
  }

  /** The stream is over; the one place where it ends. */
  #settle(end: StreamEnd): void {
    if (this.#state === "closed") return;
    const abandoned = this.#state === "abandoned";
    this.#state = "closed";
    this.#cancelTimer?.cancel();
    this.#cancelTimer = undefined;
    this.#host.remove(this);
    this.#wakeProducers();
    if (this.#inbound.length === 0 && this.#waiter !== undefined) {
      const waiter = this.#waiter;
      this.#waiter = undefined;
      this.#ended = true;
      waiter.resolve({ done: true, value: undefined });
    }
    if (abandoned) this.#listener?.settled?.();
    else this.#listener?.closed?.(end);
  }

  #deliver(message: StreamMessage, charge: number): void {
    const waiter = this.#waiter;
    if (waiter !== undefined) {
      this.#waiter = undefined;
      this.#taken = charge;
      waiter.resolve({ done: false, value: message });
      return;
    }
    if (message.case === "providerTunnelFrame" && message.value.kind === Kind.BODY) {
      const last = this.#inbound.at(-1);
      if (last?.body?.append(message.value.body) === true) last.charge += charge;
      else this.#inbound.push({ message, body: new BodyBuffer(message.value.body, true), charge });
      return;
    }
    if (message.case === "part") message.value.data = retain(message.value.data);
    this.#inbound.push({ message, body: undefined, charge });
  }

  #release(bytes: number): void {
    if (this.#receiveCredit.release(bytes) && this.#state === "open" && this.#failure === undefined)
      this.#host.grant(this);
  }

  #dequeued(bytes: number): void {
    this.#queued -= bytes;
    if (this.#queued < RESUME_BYTES) this.#wakeProducers();
  }

  #wakeProducers(): void {
    const waiting = this.#drained;
    if (waiting === undefined) return;
    this.#drained = undefined;
    for (const resolve of waiting) resolve();
  }
}

function messageOf(item: Inbound): StreamMessage {
  if (item.body === undefined || item.message.case !== "providerTunnelFrame") return item.message;
  return { case: "providerTunnelFrame", value: tunnelBody(item.message.value.sequence, item.body.view) };
}

function isTerminal(message: StreamMessage): boolean {
  return message.case === "providerTunnelFrame" && isTerminalKind(message.value.kind);
}

// Charged to the stream's credit; everything on a stream is charged to the connection's.
function isCharged(message: StreamMessage): boolean {
  return (
    message.case === "part" || (message.case === "providerTunnelFrame" && message.value.kind === Kind.BODY)
  );
}

function checkHeadLength(message: StreamMessage, length: number): void {
  const limit =
    isOpening(message) ||
    (message.case === "providerTunnelFrame" && message.value.kind === Kind.RESPONSE_START)
      ? MAX_HEAD_FRAME_BYTES
      : MAX_TERMINAL_FRAME_BYTES;
  if (length > limit) {
    throw new WireError("invalid_argument", `${message.case} of ${length} bytes; the limit is ${limit}`);
  }
}
