import { create } from "@bufbuild/protobuf";

import type { Clock } from "./clock.ts";
import { decodeEnvelope } from "./envelope-codec.ts";
import type { FlowLimits } from "./flow-limits.ts";
import { FrameDecoder } from "./frame-decoder.ts";
import { FrameWriter } from "./frame-writer.ts";
import type { GoAway } from "./gen/iop/runtime_pb.ts";
import { GoAwayCode, GoAwaySchema } from "./gen/iop/runtime_pb.ts";
import type { HeartbeatSettings } from "./heartbeat.ts";
import { DEFAULT_HEARTBEAT, Heartbeat } from "./heartbeat.ts";
import type { MessageCase, OpeningMessage, SessionMessage } from "./message.ts";
import type { MultiplexerCounters } from "./multiplexer.ts";
import { Multiplexer } from "./multiplexer.ts";
import type { Connection } from "./transport.ts";
import type { WireErrorCode } from "./wire-error.ts";
import { WireError } from "./wire-error.ts";
import type { StreamListener, WireStream } from "./wire-stream.ts";

/** Data is added only while fewer bytes than this wait in the connection's own queue. */
const SOCKET_QUEUE_BYTES = 64 * 1024;
/** Batches of one flush before what has arrived meanwhile is read. */
const BATCHES_PER_FLUSH = 16;
/** How long a closing connection may take to say its last word, in milliseconds. */
const LINGER_MS = 1_000;

const GO_AWAY_CODES: Partial<Record<WireErrorCode, GoAwayCode>> = {
  frame_too_large: GoAwayCode.FRAME_TOO_LARGE,
  protocol_error: GoAwayCode.PROTOCOL_ERROR,
  flow_control: GoAwayCode.FLOW_CONTROL,
};

type SessionAnswer<C extends SessionMessage["case"]> = Extract<SessionMessage, { case: C }>;

/** What a session tells its owner. Handlers must not throw. */
export interface SessionHandlers {
  /** A message of the session itself that no `request` waits for. */
  message(message: SessionMessage): void;
  /** The Edge opened a stream (at a Node). Its terminal is the owner's duty. */
  opened?(stream: WireStream, opening: OpeningMessage): void;
  /** The peer is about to close, or wants nothing new. The connection may stay open. */
  goAway?(goAway: GoAway): void;
  /**
   * The session is over and every stream has ended; called exactly once, last. After `close` the
   * connection may stay for up to 1 s to deliver the GoAway.
   */
  closed(error: WireError): void;
}

export interface SessionOptions {
  readonly connection: Connection;
  readonly role: "edge" | "node";
  readonly clock: Clock;
  readonly handlers: SessionHandlers;
  readonly heartbeat?: HeartbeatSettings;
  /** Longest frame accepted before `agree`, in bytes. */
  readonly maxFrameBytes: number;
}

/**
 * One connection between an Edge and a Node: frames, heartbeat, request and response on the session
 * itself, and multiplexed streams once both sides have agreed on limits.
 */
export class Session {
  readonly remote: string;
  readonly #connection: Connection;
  readonly #clock: Clock;
  readonly #handlers: SessionHandlers;
  readonly #decoder: FrameDecoder;
  readonly #writer = new FrameWriter();
  readonly #mux: Multiplexer;
  readonly #heartbeat: Heartbeat;
  readonly #requests = new Map<MessageCase, (message: SessionMessage) => void>();
  readonly #closing = new AbortController();
  #flushing = false;
  #error: WireError | undefined;
  #lastGoAway: GoAway | undefined;

  constructor(options: SessionOptions) {
    this.#connection = options.connection;
    this.#clock = options.clock;
    this.#handlers = options.handlers;
    this.remote = options.connection.remote;
    this.#decoder = new FrameDecoder(options.maxFrameBytes);
    this.#mux = new Multiplexer({
      role: options.role,
      clock: options.clock,
      handlers: {
        wantsFlush: () => this.#scheduleFlush(),
        message: (message) => this.#onMessage(message),
        opened: (stream, opening) => this.#handlers.opened?.(stream, opening),
      },
    });
    this.#heartbeat = new Heartbeat({
      settings: options.heartbeat ?? DEFAULT_HEARTBEAT,
      clock: options.clock,
      ping: (sequence) => this.#mux.ping(sequence),
      dead: () => {
        this.#fail(
          new WireError(
            "heartbeat_timeout",
            `nothing received from ${this.remote} for ${Math.round(this.#heartbeat.silentMs)} ms`,
          ),
        );
      },
    });
    this.#connection.open({
      data: (chunk) => this.#onData(chunk),
      drained: () => this.#flush(),
      closed: (error) => this.#onClosed(error),
    });
  }

  /** Streams that are not over. */
  get streams(): number {
    return this.#mux.streams;
  }

  /** Resolves when no stream is left and what they sent is on its way, or the session is over. */
  idle(): Promise<void> {
    return this.#mux.idle();
  }

  get counters(): Readonly<MultiplexerCounters> {
    return this.#mux.counters;
  }

  /** Round trip of the last heartbeat, in milliseconds; undefined before the first. */
  get roundTripMs(): number | undefined {
    return this.#heartbeat.roundTripMs;
  }

  /** Milliseconds since the last received byte. */
  get silentMs(): number {
    return this.#heartbeat.silentMs;
  }

  /** What ended the session; undefined while it lives. */
  get error(): WireError | undefined {
    return this.#error;
  }

  /** Fires when the session ends, with the WireError that ended it. */
  get signal(): AbortSignal {
    return this.#closing.signal;
  }

  /** Limits in force from here on, agreed at registration. Called once. */
  agree(limits: FlowLimits, heartbeat?: HeartbeatSettings): void {
    this.#decoder.maxFrameBytes = limits.maxFrameBytes;
    this.#mux.agree(limits);
    if (heartbeat !== undefined) this.#heartbeat.settings = heartbeat;
  }

  /**
   * Asks the peer for a sign of life. Resolves with true once any byte has come, with false where none comes
   * within `timeoutMs` or the session is over; it ends nothing.
   */
  probe(timeoutMs: number): Promise<boolean> {
    return this.#heartbeat.probe(timeoutMs);
  }

  /** Sends a message of the session itself, ahead of all data. Dropped once the session is over. */
  send(message: SessionMessage): void {
    if (this.#error === undefined) this.#mux.send(message);
  }

  /** As `send`, but no stream that is open by now is opened behind it (at an Edge). */
  sendBehindOpenings(message: SessionMessage): void {
    if (this.#error === undefined) this.#mux.sendBehindOpenings(message);
  }

  /**
   * Sends a message and waits for the next one of case `answer`, which it resolves with.
   * @throws WireError `timeout`, or what ended the session; the signal's reason when aborted.
   */
  async request<C extends SessionMessage["case"]>(
    message: SessionMessage,
    answer: C,
    options: { readonly timeoutMs: number; readonly signal?: AbortSignal | undefined },
  ): Promise<SessionAnswer<C>> {
    options.signal?.throwIfAborted();
    if (this.#error !== undefined) throw this.#error;
    if (this.#requests.has(answer))
      throw new WireError("invalid_argument", `a request already waits for ${answer}`);
    const { promise, resolve, reject } = Promise.withResolvers<SessionAnswer<C>>();
    const closed = (): void => reject(this.#closing.signal.reason);
    const aborted = (): void => reject(options.signal?.reason);
    const timer = this.#clock.setTimer(
      () => reject(new WireError("timeout", `no ${answer} within ${options.timeoutMs} ms`)),
      options.timeoutMs,
    );
    this.#requests.set(answer, (answering) => {
      if (isCase(answering, answer)) resolve(answering);
    });
    this.#closing.signal.addEventListener("abort", closed);
    options.signal?.addEventListener("abort", aborted);
    try {
      this.send(message);
      return await promise;
    } finally {
      timer.cancel();
      this.#requests.delete(answer);
      this.#closing.signal.removeEventListener("abort", closed);
      options.signal?.removeEventListener("abort", aborted);
    }
  }

  /**
   * Opens a stream (at an Edge); `body` follows the opening as Parts, by reference.
   * @throws WireError `too_many_streams`, `invalid_argument` (a head over 64 KiB), or what ended the session.
   */
  open(opening: OpeningMessage, body: readonly Uint8Array[], listener: StreamListener): WireStream {
    return this.#mux.open(opening, body, listener);
  }

  /** Tells the peer something with a GoAway; the connection stays open. */
  goAway(code: GoAwayCode, reason: string, retryAfterMs = 0): void {
    if (this.#error !== undefined) return;
    this.#mux.send({ case: "goAway", value: create(GoAwaySchema, { code, reason, retryAfterMs }) });
  }

  /** Ends the session: a GoAway with the reason, then the connection. Streams fail with `closed`. Idempotent. */
  close(code: GoAwayCode, reason: string, retryAfterMs = 0): void {
    if (this.#error !== undefined) return;
    this.goAway(code, reason, retryAfterMs);
    this.#fail(new WireError("closed", reason), true);
  }

  /** Ends the session without a word. Idempotent. */
  destroy(error: WireError): void {
    this.#fail(error);
  }

  #onData(chunk: Uint8Array): void {
    if (this.#error !== undefined) return;
    this.#heartbeat.received();
    try {
      this.#decoder.push(chunk, (frame) => {
        const { stream, message } = decodeEnvelope(frame);
        if (message?.case === "goAway") this.#onGoAway(message.value);
        else {
          if (message?.case === "heartbeatAck") this.#heartbeat.acknowledged(message.value.sequence);
          this.#mux.receive(stream, message, frame.length);
        }
        return this.#error === undefined;
      });
    } catch (error) {
      const failure = WireError.from(error, "protocol_error");
      const code = GO_AWAY_CODES[failure.code];
      if (code !== undefined) this.goAway(code, failure.message);
      this.#fail(failure, code !== undefined);
    }
  }

  #onMessage(message: SessionMessage): void {
    const waiting = this.#requests.get(message.case);
    if (waiting !== undefined) waiting(message);
    else this.#handlers.message(message);
  }

  #onGoAway(goAway: GoAway): void {
    this.#lastGoAway = goAway;
    this.#handlers.goAway?.(goAway);
  }

  #onClosed(error: Error | undefined): void {
    const said = this.#lastGoAway;
    if (said !== undefined)
      this.#fail(new WireError("going_away", `${goAwayName(said.code)}: ${said.reason}`));
    else
      this.#fail(
        new WireError("connection_lost", error?.message ?? "connection closed by the peer", { cause: error }),
      );
  }

  /** The one place where a session ends; with `lastWords`, what is queued is still sent. */
  #fail(error: WireError, lastWords = false): void {
    if (this.#error !== undefined) return;
    if (lastWords) {
      this.#mux.take(this.#writer, 0);
      this.#connection.write(this.#writer.finish());
    }
    this.#error = error;
    this.#heartbeat.stop();
    this.#mux.close(error);
    this.#closing.abort(error);
    if (lastWords) this.#connection.end(LINGER_MS);
    else this.#connection.destroy(error);
    this.#handlers.closed(error);
  }

  // What one turn brings leaves in one write, at its end; nothing waits for a timer.
  #scheduleFlush(): void {
    if (this.#flushing) return;
    this.#flushing = true;
    this.#clock.defer(() => {
      this.#flushing = false;
      this.#flush();
    });
  }

  #flush(): void {
    if (this.#error !== undefined) return;
    for (let batch = 0; batch < BATCHES_PER_FLUSH; batch++) {
      this.#mux.take(this.#writer, Math.max(0, SOCKET_QUEUE_BYTES - this.#connection.queuedBytes));
      if (this.#writer.bytes === 0) return;
      this.#connection.write(this.#writer.finish());
      // A full queue tells when it has drained.
      if (!this.#mux.hasData || this.#connection.queuedBytes >= SOCKET_QUEUE_BYTES) return;
    }
    this.#scheduleFlush();
  }
}

function isCase<C extends SessionMessage["case"]>(
  message: SessionMessage,
  wanted: C,
): message is Extract<SessionMessage, { case: C }> {
  return message.case === wanted;
}

/** `draining`, `heartbeat_timeout`, …; the number of one that this version does not know. */
function goAwayName(code: GoAwayCode): string {
  const known = Object.entries(GoAwayCode).find(([, value]) => value === code);
  return known?.[0].toLowerCase() ?? String(code);
}
