import { create } from "@bufbuild/protobuf";

import type { Clock, Timer } from "./clock.ts";
import { ReceiveCredit, SendCredit } from "./credit.ts";
import { encodeFrame } from "./envelope-codec.ts";
import type { FlowLimits } from "./flow-limits.ts";
import type { FrameWriter } from "./frame-writer.ts";
import { CancelKind, CancelRequestSchema } from "./gen/iop/runtime_pb.ts";
import { writeCredit, writeHeartbeat, writeHeartbeatAck } from "./hot-codec.ts";
import type { OpeningMessage, SessionMessage, WireMessage } from "./message.ts";
import { isOpening, isSessionMessage, isStreamMessage } from "./message.ts";
import { WireError } from "./wire-error.ts";
import type { StreamHost, StreamListener, WireStream } from "./wire-stream.ts";
import { MuxStream } from "./wire-stream.ts";

/** How long the opener of a cancelled stream waits for its terminal, in milliseconds. */
const CANCEL_TIMEOUT_MS = 10_000;
const MAX_PINGS_PER_SECOND = 100;
const MAX_STREAM_ID = 0xffffffff;

/** What the multiplexer asks of its owner. */
export interface MultiplexerHandlers {
  /** Something may be taken; called again after each `take` that left nothing. */
  wantsFlush(): void;
  /** A message of the session itself. */
  message(message: SessionMessage): void;
  /** The peer opened a stream (at a Node). */
  opened?(stream: WireStream, opening: OpeningMessage): void;
}

/** Counts of what was dropped on purpose. */
export interface MultiplexerCounters {
  /** Envelopes of a member that this version does not know. */
  unknownMessages: number;
  /** Messages for streams that are over, and sends after a terminal. */
  lateMessages: number;
}

/**
 * The streams of one connection, their order, credit and cancellation, as a state machine without
 * sockets: messages in through `receive`, frames out through `take`.
 *
 * Two levels of credit: a stream's comes back when its reader has taken the bytes, the connection's when
 * they have arrived. The first bounds memory, the second what sits in the pipe; returning the second on
 * consumption would let a few stalled readers stop everyone.
 */
export class Multiplexer implements StreamHost {
  readonly role: "edge" | "node";
  readonly counters: MultiplexerCounters = { unknownMessages: 0, lateMessages: 0 };
  readonly #clock: Clock;
  readonly #handlers: MultiplexerHandlers;
  #limits: FlowLimits | undefined;
  readonly #streams = new Map<number, MuxStream>();
  #lastId = 0;
  #closed: WireError | undefined;
  #idle: Array<() => void> = [];

  // Control: bounded by construction. One ping, one ack, one credit and one cancel a stream.
  #ping: number | undefined;
  #ack: number | undefined;
  #session: Uint8Array[] = [];
  /** Messages of the session that wait for the openings of these streams to leave. */
  #behind: Array<{ readonly frame: Uint8Array; readonly openings: Set<MuxStream> }> = [];
  readonly #grants = new Set<MuxStream>();
  readonly #cancels = new Set<MuxStream>();
  #connectionGrant = false;

  // Data: streams that have something to send and the credit for it, in turn.
  #ring: MuxStream[] = [];
  #connectionBlocked = false;
  #sendCredit = new SendCredit(0);
  #receiveCredit = new ReceiveCredit(0, 1);

  #second = 0;
  #pingsThisSecond = 0;

  constructor(options: {
    readonly role: "edge" | "node";
    readonly clock: Clock;
    readonly handlers: MultiplexerHandlers;
  }) {
    this.role = options.role;
    this.#clock = options.clock;
    this.#handlers = options.handlers;
  }

  /** Both sides have agreed; streams are possible from here on. Called once. */
  agree(limits: FlowLimits): void {
    this.#limits = limits;
    this.#sendCredit = new SendCredit(limits.connectionWindowBytes);
    this.#receiveCredit = new ReceiveCredit(limits.connectionWindowBytes, 4);
  }

  /** Streams that are not over. */
  get streams(): number {
    return this.#streams.size;
  }

  /** Whether `take` would find data (control aside). */
  get hasData(): boolean {
    return this.#ring.length > 0 && !this.#connectionBlocked;
  }

  /** Resolves when no stream is left: the last frames of each have been taken. */
  async idle(): Promise<void> {
    if (this.#streams.size === 0) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#idle.push(resolve);
    await promise;
  }

  /** Bytes of the peer's connection window in use; for tests of the invariants. */
  get connectionCredit(): { readonly available: number; readonly held: number } {
    return { available: this.#sendCredit.available, held: this.#receiveCredit.held };
  }

  /**
   * Opens a stream (at an Edge); `body` follows the opening as Parts.
   * @throws WireError `too_many_streams`, `invalid_argument` (a head over 64 KiB), or what ended the connection.
   */
  open(opening: OpeningMessage, body: readonly Uint8Array[], listener: StreamListener): WireStream {
    if (this.#closed !== undefined) throw this.#closed;
    if (this.#limits === undefined)
      throw new WireError("invalid_argument", "no streams before the limits are agreed");
    if (this.#streams.size >= this.#limits.maxStreams || this.#lastId >= MAX_STREAM_ID) {
      throw new WireError("too_many_streams", `the connection has ${this.#streams.size} streams`);
    }
    const stream = new MuxStream(++this.#lastId, this, opening, listener);
    this.#streams.set(stream.id, stream);
    stream.sendParts(body);
    return stream;
  }

  /** Queues a message of the session itself, ahead of all data. */
  send(message: SessionMessage | Extract<WireMessage, { case: "goAway" }>): void {
    this.#session.push(encodeFrame(0, message));
    this.#handlers.wantsFlush();
  }

  /** As `send`, but behind the openings of the streams that there are: the peer knows of them when it comes. */
  sendBehindOpenings(message: SessionMessage): void {
    const openings = new Set<MuxStream>();
    for (const stream of this.#streams.values()) if (!stream.started) openings.add(stream);
    if (openings.size === 0) this.send(message);
    else this.#behind.push({ frame: encodeFrame(0, message), openings });
  }

  /** Queues a heartbeat, ahead of all data; a ping that has not left is replaced. */
  ping(sequence: number): void {
    this.#ping = sequence;
    this.#handlers.wantsFlush();
  }

  /**
   * Takes in one decoded frame that cost `charge` bytes.
   * @throws WireError `protocol_error` or `flow_control`: the connection cannot go on.
   */
  receive(stream: number, message: WireMessage | undefined, charge: number): void {
    if (stream !== 0) return this.#receiveOnStream(stream, message, charge);
    if (message === undefined) {
      this.counters.unknownMessages++;
      return;
    }
    switch (message.case) {
      case "streamCredit":
        this.#sendCredit.allow(safeLimit(message.value.limit));
        this.#connectionBlocked = false;
        if (this.#ring.length > 0) this.#handlers.wantsFlush();
        return;
      case "heartbeat":
        this.#countPing();
        this.#ack = message.value.sequence;
        this.#handlers.wantsFlush();
        return;
      case "heartbeatAck":
      case "goAway":
        return;
      default:
        if (!isSessionMessage(message))
          throw new WireError("protocol_error", `${message.case} outside a stream`);
        this.#handlers.message(message);
    }
  }

  /** Ends all streams with `error`. Idempotent. */
  close(error: WireError): void {
    if (this.#closed !== undefined) return;
    this.#closed = error;
    this.#ring = [];
    this.#behind = [];
    this.#grants.clear();
    this.#cancels.clear();
    for (const stream of this.#streams.values()) stream.disconnected(error);
    this.#streams.clear();
    this.#wakeIdle();
  }

  /** Writes all control frames, then data while there is credit and `dataBytes` are not reached. */
  take(writer: FrameWriter, dataBytes: number): void {
    this.#takeControl(writer);
    const end = writer.bytes + dataBytes;
    while (writer.bytes < end && !this.#connectionBlocked) {
      const stream = this.#ring.shift();
      if (stream === undefined) return;
      const charge = stream.writeNext(writer, this.#sendCredit.available);
      if (charge < 0) {
        this.#ring.unshift(stream);
        this.#connectionBlocked = true;
        return;
      }
      this.#sendCredit.charge(charge);
      if (charge > 0 && this.#behind.length > 0) this.#opened(stream);
      if (charge > 0 && stream.pending) this.#ring.push(stream);
      else stream.scheduled = false;
    }
  }

  // -------------------------------------------------------------------------------------------
  // For the streams

  get windowBytes(): number {
    return this.#limits?.streamWindowBytes ?? 0;
  }

  ready(stream: MuxStream): void {
    if (stream.scheduled || this.#closed !== undefined) return;
    stream.scheduled = true;
    this.#ring.push(stream);
    if (!this.#connectionBlocked) this.#handlers.wantsFlush();
  }

  grant(stream: MuxStream): void {
    this.#grants.add(stream);
    this.#handlers.wantsFlush();
  }

  sendCancel(stream: MuxStream): void {
    this.#cancels.add(stream);
    this.#handlers.wantsFlush();
  }

  remove(stream: MuxStream): void {
    this.#streams.delete(stream.id);
    if (this.#streams.size === 0) this.#wakeIdle();
    if (this.#behind.length > 0) this.#opened(stream);
    this.#grants.delete(stream);
    this.#cancels.delete(stream);
  }

  cancelTimer(callback: () => void): Timer {
    return this.#clock.setTimer(callback, CANCEL_TIMEOUT_MS);
  }

  countLate(): void {
    this.counters.lateMessages++;
  }

  // -------------------------------------------------------------------------------------------

  #receiveOnStream(id: number, message: WireMessage | undefined, charge: number): void {
    if (this.#limits === undefined) throw new WireError("protocol_error", "stream before registration");
    const control = message?.case === "streamCredit" || message?.case === "cancelRequest";
    if (!control) this.#chargeConnection(charge);
    const stream = this.#streams.get(id);
    if (stream === undefined) {
      if (this.role === "node" && message !== undefined && isOpening(message))
        return this.#accept(id, message, this.#limits);
      if (id > this.#lastId)
        throw new WireError("protocol_error", `frame for stream ${id}, which was never opened`);
      this.countLate();
      return;
    }
    if (message === undefined) {
      this.counters.unknownMessages++;
      return;
    }
    if (message.case === "streamCredit") stream.allow(safeLimit(message.value.limit));
    else if (message.case === "cancelRequest") {
      if (this.role === "edge") throw new WireError("protocol_error", "a Node does not cancel");
      stream.cancelledByPeer(message.value.reason);
    } else if (isStreamMessage(message)) {
      if (isOpening(message)) throw new WireError("protocol_error", `stream ${id} opened twice`);
      stream.receive(message, charge);
    } else throw new WireError("protocol_error", `${message.case} on a stream`);
  }

  #accept(id: number, opening: OpeningMessage, limits: FlowLimits): void {
    if (id <= this.#lastId) throw new WireError("protocol_error", `stream ${id} after ${this.#lastId}`);
    if (this.#streams.size >= limits.maxStreams)
      throw new WireError("protocol_error", "more streams than agreed");
    this.#lastId = id;
    const stream = new MuxStream(id, this, undefined);
    this.#streams.set(id, stream);
    this.#handlers.opened?.(stream, opening);
  }

  // Credit of the connection comes back as soon as the bytes are here, whoever reads them when.
  #chargeConnection(charge: number): void {
    if (!this.#receiveCredit.receive(charge)) {
      throw new WireError("flow_control", "the peer is over its connection window");
    }
    if (this.#receiveCredit.release(charge)) {
      this.#connectionGrant = true;
      this.#handlers.wantsFlush();
    }
  }

  /** The opening of `stream` has left or never will. */
  #opened(stream: MuxStream): void {
    for (const { openings } of this.#behind) openings.delete(stream);
    // Each waits for all that the one before it waits for.
    for (let next = this.#behind[0]; next?.openings.size === 0; next = this.#behind[0]) {
      this.#behind.shift();
      this.#session.push(next.frame);
      this.#handlers.wantsFlush();
    }
  }

  #takeControl(writer: FrameWriter): void {
    for (const frame of this.#session) writer.push(frame);
    if (this.#session.length > 0) this.#session = [];
    if (this.#ack !== undefined) {
      const into = writer.reserve();
      writer.commit(writeHeartbeatAck(into, writer.offset, this.#ack));
      this.#ack = undefined;
    }
    if (this.#ping !== undefined) {
      const into = writer.reserve();
      writer.commit(writeHeartbeat(into, writer.offset, this.#ping));
      this.#ping = undefined;
    }
    if (this.#connectionGrant) {
      this.#connectionGrant = false;
      const into = writer.reserve();
      writer.commit(writeCredit(into, writer.offset, 0, this.#receiveCredit.grant()));
    }
    for (const stream of this.#cancels) {
      const value = create(CancelRequestSchema, { kind: CancelKind.STREAM, reason: stream.cancelReason });
      writer.push(encodeFrame(stream.id, { case: "cancelRequest", value }));
    }
    this.#cancels.clear();
    for (const stream of this.#grants) {
      const into = writer.reserve();
      writer.commit(writeCredit(into, writer.offset, stream.id, stream.grant()));
    }
    this.#grants.clear();
  }

  #wakeIdle(): void {
    const waiting = this.#idle;
    this.#idle = [];
    for (const resolve of waiting) resolve();
  }

  #countPing(): void {
    const second = Math.floor(this.#clock.now() / 1000);
    if (second !== this.#second) {
      this.#second = second;
      this.#pingsThisSecond = 0;
    }
    if (++this.#pingsThisSecond > MAX_PINGS_PER_SECOND)
      throw new WireError("protocol_error", "flood of heartbeats");
  }
}

/** A credit limit as a number. */
function safeLimit(limit: bigint): number {
  if (limit > BigInt(Number.MAX_SAFE_INTEGER))
    throw new WireError("flow_control", "credit limit out of range");
  return Number(limit);
}
