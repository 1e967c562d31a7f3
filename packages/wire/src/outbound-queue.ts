import { BodyBuffer } from "./body-buffer.ts";
import { SendCredit } from "./credit.ts";
import { encodeFrame } from "./envelope-codec.ts";
import { MAX_BODY_BYTES, MAX_HEAD_FRAME_BYTES, MAX_TERMINAL_FRAME_BYTES } from "./flow-limits.ts";
import type { FrameWriter } from "./frame-writer.ts";
import { ProviderTunnelFrame_Kind as Kind } from "./gen/iop/runtime_pb.ts";
import { partLength, tunnelBodyLength, writePartHead, writeTunnelBodyHead } from "./hot-codec.ts";
import type { StreamMessage } from "./message.ts";
import { isOpening, isTerminal } from "./message.ts";
import { WireError } from "./wire-error.ts";

/** A producer is asked to wait at this many queued bytes. */
const PAUSE_BYTES = 64 * 1024;
/** ... and to go on below this many. */
const RESUME_BYTES = 32 * 1024;
const PREFIX_BYTES = 4;
/** What a sequence, unknown when a length is checked, adds at most: a tag and five bytes of varint. */
const SEQUENCE_BYTES = 6;

type Outbound =
  | { readonly kind: "message"; readonly message: StreamMessage; frame: Uint8Array | undefined }
  | { readonly kind: "body"; readonly body: BodyBuffer }
  | { readonly kind: "parts"; readonly chunks: readonly Uint8Array[]; index: number; at: number };

/** What one stream has to send, in order. Sequence numbers are given as frames leave, so dropping leaves no gap. */
export class OutboundQueue {
  readonly #stream: number;
  readonly #credit: SendCredit;
  #items: Outbound[] = [];
  #bodyBytes = 0;
  #sequence = 0;
  #drained: Array<() => void> | undefined;
  /** Whether a frame has left. */
  started = false;

  constructor(stream: number, windowBytes: number) {
    this.#stream = stream;
    this.#credit = new SendCredit(windowBytes);
  }

  get pending(): boolean {
    return this.#items.length > 0;
  }

  /** Whether a producer is to wait for `drained`. */
  get full(): boolean {
    return this.#bodyBytes >= PAUSE_BYTES;
  }

  /** @throws WireError `invalid_argument` where a head is over 64 KiB or a terminal over 16 KiB. */
  pushMessage(message: StreamMessage): void {
    const numbered = message.case === "providerTunnelFrame";
    // An END has nothing that could grow.
    const grows = !numbered || message.value.kind !== Kind.END;
    let frame: Uint8Array | undefined;
    if (grows || this.#items.length === 0) {
      if (numbered) message.value.sequence = this.#sequence + 1;
      frame = encodeFrame(this.#stream, message);
      checkLength(message, frame.length - PREFIX_BYTES);
    }
    // The next to leave has the next number; that of one behind others is known when it leaves.
    if (numbered && this.#items.length > 0) frame = undefined;
    else if (numbered) this.#sequence++;
    this.#items.push({ kind: "message", message, frame });
  }

  /** Puts bytes of a tunnel's body behind what waits; copied where they would pin a larger buffer for long. */
  pushBody(bytes: Uint8Array): void {
    this.#bodyBytes += bytes.length;
    const last = this.#items.at(-1);
    if (last?.kind === "body" && last.body.append(bytes)) return;
    const waits = this.#items.length > 0 || this.#credit.available < bytes.length;
    this.#items.push({ kind: "body", body: new BodyBuffer(bytes, waits) });
  }

  /** A request body, by reference, cut into Parts as they leave. */
  pushParts(chunks: readonly Uint8Array[]): void {
    const filled = chunks.filter((chunk) => chunk.length > 0);
    if (filled.length > 0) this.#items.push({ kind: "parts", chunks: filled, index: 0, at: 0 });
  }

  /** The peer allows more. */
  allow(limit: number): void {
    this.#credit.allow(limit);
  }

  /** Drops what has not left; a terminal stays where `keepTerminal`. Producers that wait go on. */
  drop(keepTerminal: boolean): void {
    this.#items = keepTerminal
      ? this.#items.filter((item) => item.kind === "message" && isTerminal(item.message))
      : [];
    this.#bodyBytes = 0;
    this.#wake();
  }

  /** Resolves when a producer may go on. */
  async drained(): Promise<void> {
    if (!this.full) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    (this.#drained ??= []).push(resolve);
    await promise;
  }

  /** Whether the next frame is the terminal. */
  get endsNext(): boolean {
    const item = this.#items[0];
    return item?.kind === "message" && isTerminal(item.message);
  }

  /**
   * Writes the next frame, if the stream's credit allows it and it costs at most `connectionCredit`. Answers
   * its charge; 0: nothing may be sent now for want of stream credit; -1: for want of connection credit.
   */
  writeNext(writer: FrameWriter, connectionCredit: number): number {
    const item = this.#items[0];
    if (item === undefined) return 0;
    switch (item.kind) {
      case "message": {
        item.frame ??= this.#encode(item.message);
        const charge = item.frame.length - PREFIX_BYTES;
        if (charge > connectionCredit) return -1;
        writer.push(item.frame);
        this.#items.shift();
        this.started = true;
        return charge;
      }
      case "body": {
        const length = Math.min(item.body.length, MAX_BODY_BYTES);
        const charge = tunnelBodyLength(this.#stream, this.#sequence + 1, length);
        if (charge > this.#credit.available) return 0;
        if (charge > connectionCredit) return -1;
        const into = writer.reserve();
        writer.commit(writeTunnelBodyHead(into, writer.offset, this.#stream, ++this.#sequence, length));
        writer.push(item.body.take(length));
        if (item.body.length === 0) this.#items.shift();
        this.#credit.charge(charge);
        this.#bodyBytes -= length;
        if (this.#bodyBytes < RESUME_BYTES) this.#wake();
        return charge;
      }
      case "parts": {
        const chunk = item.chunks[item.index] ?? new Uint8Array(0);
        const length = Math.min(chunk.length - item.at, MAX_BODY_BYTES);
        const ends = item.at + length === chunk.length;
        const last = ends && item.index === item.chunks.length - 1;
        const charge = partLength(this.#stream, last, length);
        if (charge > this.#credit.available) return 0;
        if (charge > connectionCredit) return -1;
        const into = writer.reserve();
        writer.commit(writePartHead(into, writer.offset, this.#stream, last, length));
        writer.push(chunk.subarray(item.at, item.at + length));
        item.at = ends ? 0 : item.at + length;
        if (ends) item.index++;
        if (last) this.#items.shift();
        this.#credit.charge(charge);
        return charge;
      }
    }
  }

  #encode(message: StreamMessage): Uint8Array {
    if (message.case === "providerTunnelFrame") message.value.sequence = ++this.#sequence;
    return encodeFrame(this.#stream, message);
  }

  #wake(): void {
    const waiting = this.#drained;
    if (waiting === undefined) return;
    this.#drained = undefined;
    for (const resolve of waiting) resolve();
  }
}

function checkLength(message: StreamMessage, length: number): void {
  const limit =
    isOpening(message) ||
    (message.case === "providerTunnelFrame" && message.value.kind === Kind.RESPONSE_START)
      ? MAX_HEAD_FRAME_BYTES
      : MAX_TERMINAL_FRAME_BYTES;
  if (length + SEQUENCE_BYTES > limit) {
    throw new WireError("invalid_argument", `${message.case} of ${length} bytes; the limit is ${limit}`);
  }
}
