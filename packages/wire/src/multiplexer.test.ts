import { create } from "@bufbuild/protobuf";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";

import { decodeEnvelope } from "./envelope-codec.ts";
import type { FlowLimits } from "./flow-limits.ts";
import { FrameDecoder } from "./frame-decoder.ts";
import { FrameWriter } from "./frame-writer.ts";
import {
  ProviderTunnelFrame_Kind as Kind,
  ProviderTunnelFrameSchema,
  ProviderTunnelRequestSchema,
} from "./gen/iop/runtime_pb.ts";
import type { OpeningMessage, StreamMessage } from "./message.ts";
import { Multiplexer } from "./multiplexer.ts";
import type { VirtualClock } from "./virtual-clock.ts";
import { createVirtualClock } from "./virtual-clock.ts";
import { WireError } from "./wire-error.ts";
import type { StreamEnd, WireStream } from "./wire-stream.ts";

const LIMITS: FlowLimits = {
  streamWindowBytes: 64 * 1024,
  connectionWindowBytes: 128 * 1024,
  maxFrameBytes: 1024 * 1024,
  maxStreams: 64,
};

/** One direction of the network: bytes that left and have not arrived. */
class Pipe {
  #bytes: Uint8Array[] = [];
  readonly #from: Multiplexer;
  readonly #to: Multiplexer;
  readonly #writer = new FrameWriter();
  readonly #decoder = new FrameDecoder(LIMITS.maxFrameBytes);

  constructor(from: Multiplexer, to: Multiplexer) {
    this.#from = from;
    this.#to = to;
  }

  /** The sender writes one batch. True where it had something. */
  flush(dataBytes: number): boolean {
    this.#from.take(this.#writer, dataBytes);
    const chunks = this.#writer.finish();
    this.#bytes.push(...chunks);
    return chunks.length > 0;
  }

  /** Up to `bytes` arrive. True where any did. */
  deliver(bytes: number): boolean {
    let left = bytes;
    while (left > 0) {
      const chunk = this.#bytes[0];
      if (chunk === undefined) return left < bytes;
      const piece = chunk.subarray(0, left);
      left -= piece.length;
      if (piece.length === chunk.length) this.#bytes.shift();
      else this.#bytes[0] = chunk.subarray(piece.length);
      this.#decoder.push(piece.slice(), (payload) => {
        const { stream, message } = decodeEnvelope(payload);
        this.#to.receive(stream, message, payload.length);
        return true;
      });
    }
    return true;
  }

  get underWay(): number {
    return this.#bytes.reduce((sum, chunk) => sum + chunk.length, 0);
  }
}

/** What happened to one stream, seen from both ends. */
class Exchange {
  readonly stream: WireStream;
  readonly ends: StreamEnd[] = [];
  stalled = false;
  cancelled = false;
  /** Bytes that the Node sent and that the Edge's reader got, as running sums of a pattern. */
  produced = 0;
  consumed = 0;
  kinds: Kind[] = [];
  failures: WireError[] = [];
  reading = false;

  constructor(open: (listener: { closed(end: StreamEnd): void }) => WireStream) {
    this.stream = open({ closed: (end) => void this.ends.push(end) });
  }

  async read(): Promise<void> {
    if (this.reading || this.stalled) return;
    this.reading = true;
    try {
      while (!this.stalled) {
        const { done, value } = await this.stream.next();
        if (done === true) return;
        this.#take(value);
      }
    } catch (error) {
      this.failures.push(WireError.from(error, "protocol_error"));
    } finally {
      this.reading = false;
    }
  }

  #take(message: StreamMessage): void {
    if (message.case !== "providerTunnelFrame") throw new Error(message.case);
    this.kinds.push(message.value.kind);
    for (const byte of message.value.body) {
      if (byte !== (this.consumed & 0xff)) throw new Error(`byte ${this.consumed} is ${byte}`);
      this.consumed++;
    }
  }
}

class Harness {
  readonly clock: VirtualClock = createVirtualClock();
  readonly exchanges: Exchange[] = [];
  readonly atNode = new Map<number, WireStream>();
  readonly edge: Multiplexer;
  readonly node: Multiplexer;
  readonly down: Pipe;
  readonly up: Pipe;

  constructor() {
    const ignore = { wantsFlush: () => {}, message: () => {} };
    this.edge = new Multiplexer({ role: "edge", clock: this.clock, handlers: ignore });
    this.node = new Multiplexer({
      role: "node",
      clock: this.clock,
      handlers: { ...ignore, opened: (stream) => void this.atNode.set(stream.id, stream) },
    });
    this.edge.agree(LIMITS);
    this.node.agree(LIMITS);
    this.down = new Pipe(this.edge, this.node);
    this.up = new Pipe(this.node, this.edge);
  }

  open(bodyBytes = 0): Exchange {
    const exchange = new Exchange((listener) =>
      this.edge.open(request(), [new Uint8Array(bodyBytes)], listener),
    );
    this.exchanges.push(exchange);
    return exchange;
  }

  nodeSide(exchange: Exchange): WireStream | undefined {
    return this.atNode.get(exchange.stream.id);
  }

  produce(exchange: Exchange, bytes: number): void {
    const stream = this.nodeSide(exchange);
    if (stream === undefined || stream.signal.aborted) return;
    stream.sendBody(Uint8Array.from({ length: bytes }, (_, index) => (exchange.produced + index) & 0xff));
    exchange.produced += bytes;
  }

  /** Lets everything move until nothing does. */
  async quiesce(): Promise<void> {
    for (let idle = 0; idle < 2;) {
      for (const exchange of this.exchanges) void exchange.read();
      const moved = [
        this.down.flush(65_536),
        this.up.flush(65_536),
        this.down.deliver(1e9),
        this.up.deliver(1e9),
      ];
      await this.clock.settle();
      idle = moved.includes(true) ? 0 : idle + 1;
    }
  }
}

function request(): OpeningMessage {
  return {
    case: "providerTunnelRequest",
    value: create(ProviderTunnelRequestSchema, { operation: "chat_completions" }),
  };
}

function frame(kind: Kind): StreamMessage {
  return { case: "providerTunnelFrame", value: create(ProviderTunnelFrameSchema, { kind, status: 200 }) };
}

type Operation =
  | { readonly do: "open"; readonly bytes: number }
  | { readonly do: "start" | "end" | "error" | "stall" | "cancel"; readonly which: number }
  | { readonly do: "produce"; readonly which: number; readonly bytes: number }
  | { readonly do: "flush"; readonly bytes: number; readonly up: boolean }
  | { readonly do: "deliver"; readonly bytes: number; readonly up: boolean };

const which = fc.nat(15);
const operation: fc.Arbitrary<Operation> = fc.oneof(
  { weight: 2, arbitrary: fc.record({ do: fc.constant("open" as const), bytes: fc.nat(200_000) }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constantFrom("start" as const), which }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constantFrom("end" as const, "error" as const), which }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constantFrom("stall" as const, "cancel" as const), which }) },
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant("produce" as const),
      which,
      bytes: fc.integer({ min: 1, max: 90_000 }),
    }),
  },
  {
    weight: 6,
    arbitrary: fc.record({ do: fc.constant("flush" as const), bytes: fc.nat(65_536), up: fc.boolean() }),
  },
  {
    weight: 6,
    arbitrary: fc.record({ do: fc.constant("deliver" as const), bytes: fc.nat(100_000), up: fc.boolean() }),
  },
);

async function play(harness: Harness, operations: readonly Operation[]): Promise<void> {
  const started = new Set<Exchange>();
  const ended = new Set<Exchange>();
  for (const step of operations) {
    if (step.do === "open") {
      if (harness.exchanges.length < 16) harness.open(step.bytes);
    } else if (step.do === "flush") (step.up ? harness.up : harness.down).flush(step.bytes);
    else if (step.do === "deliver") (step.up ? harness.up : harness.down).deliver(step.bytes);
    else {
      const exchange = harness.exchanges[step.which];
      if (exchange === undefined) continue;
      const node = harness.nodeSide(exchange);
      if (step.do === "stall") exchange.stalled = true;
      else if (step.do === "cancel") {
        exchange.cancelled = true;
        exchange.stream.cancel("test");
      } else if (step.do === "produce") {
        if (started.has(exchange) && !ended.has(exchange)) harness.produce(exchange, step.bytes);
      } else if (node !== undefined) {
        if (step.do !== "error" && !started.has(exchange)) node.send(frame(Kind.RESPONSE_START));
        started.add(exchange);
        if (step.do === "start") continue;
        node.send(frame(step.do === "end" ? Kind.END : Kind.ERROR));
        ended.add(exchange);
      }
    }
    for (const exchange of harness.exchanges) void exchange.read();
    await Promise.resolve();
    checkWindows(harness);
  }
  await harness.quiesce();
  // Every stream that is still open at the Node gets its end.
  for (const exchange of harness.exchanges) {
    const node = harness.nodeSide(exchange);
    if (!started.has(exchange) && node !== undefined) node.send(frame(Kind.RESPONSE_START));
    node?.send(frame(node.signal.aborted ? Kind.ERROR : Kind.END));
  }
  await harness.quiesce();
}

function checkWindows(harness: Harness): void {
  expect(harness.up.underWay).toBeLessThanOrEqual(LIMITS.connectionWindowBytes + 100_000);
  for (const side of [harness.edge, harness.node]) {
    expect(side.connectionCredit.available).toBeGreaterThanOrEqual(0);
    expect(side.connectionCredit.available).toBeLessThanOrEqual(LIMITS.connectionWindowBytes);
  }
}

const TERMINALS: readonly Kind[] = [Kind.END, Kind.ERROR];

describe("Multiplexer", () => {
  test("order, windows, one terminal, no stream held up by another, all credit back", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(operation, { maxLength: 120, size: "max" }), async (operations) => {
        const harness = new Harness();
        await play(harness, operations);

        // Streams that nobody stalled have finished, whatever the stalled ones do.
        for (const exchange of harness.exchanges.filter((one) => !one.stalled)) expectFinished(exchange);
        for (const exchange of harness.exchanges) exchange.stalled = false;
        await harness.quiesce();
        for (const exchange of harness.exchanges) expectFinished(exchange);

        expect(harness.edge.streams).toBe(0);
        expect(harness.node.streams).toBe(0);
        for (const side of [harness.edge, harness.node]) {
          expect(side.hasData).toBe(false);
          // A grant is due at a quarter of the window; less than that may be outstanding.
          expect(side.connectionCredit.held).toBe(0);
          expect(side.connectionCredit.available).toBeGreaterThan(LIMITS.connectionWindowBytes * 0.75 - 1);
        }
      }),
      { numRuns: 200 },
    );
  }, 60_000);

  test("a stalled reader holds at most its window, and the others go on", async () => {
    const harness = new Harness();
    const stalled = harness.open();
    const lively = harness.open();
    await harness.quiesce();
    stalled.stalled = true;
    for (const exchange of [stalled, lively]) harness.nodeSide(exchange)?.send(frame(Kind.RESPONSE_START));
    for (let round = 0; round < 40; round++) {
      harness.produce(stalled, 16_000);
      harness.produce(lively, 16_000);
      await harness.quiesce();
    }
    expect(lively.consumed).toBe(40 * 16_000);
    expect(stalled.consumed).toBeLessThanOrEqual(16_000);
    const node = harness.nodeSide(stalled);
    expect(node?.sendBody(Uint8Array.of(0))).toBe(false);
  });

  test("streams take turns, a frame of at most 16 KiB each", async () => {
    const harness = new Harness();
    const exchanges = [harness.open(), harness.open(), harness.open()];
    await harness.quiesce();
    for (const exchange of exchanges) {
      harness.nodeSide(exchange)?.send(frame(Kind.RESPONSE_START));
      harness.produce(exchange, 60_000);
    }
    const writer = new FrameWriter();
    harness.node.take(writer, 1e9);
    const turns: number[] = [];
    const decoder = new FrameDecoder(LIMITS.maxFrameBytes);
    for (const chunk of writer.finish()) {
      decoder.push(chunk, (payload) => {
        expect(payload.length).toBeLessThan(17_000);
        turns.push(decodeEnvelope(payload).stream);
        return true;
      });
    }
    expect(turns.slice(0, 9)).toEqual([1, 2, 3, 1, 2, 3, 1, 2, 3]);
  });

  test("cancel works at zero credit, and the terminal is the acknowledgement", async () => {
    const harness = new Harness();
    const exchange = harness.open();
    await harness.quiesce();
    exchange.stalled = true;
    const node = harness.nodeSide(exchange);
    node?.send(frame(Kind.RESPONSE_START));
    harness.produce(exchange, 200_000);
    await harness.quiesce();

    exchange.stream.cancel("the client left");
    await harness.quiesce();
    expect(node?.signal.aborted).toBe(true);
    expect(exchange.ends).toEqual([]);
    node?.send(frame(Kind.ERROR));
    await harness.quiesce();
    expect(exchange.ends.map((end) => end.cause)).toEqual(["terminal"]);
    expect(harness.edge.streams + harness.node.streams).toBe(0);
  });

  test("a cancel lets a terminal through that waited behind a body without credit", async () => {
    const harness = new Harness();
    const exchange = harness.open();
    await harness.quiesce();
    exchange.stalled = true;
    const node = harness.nodeSide(exchange);
    node?.send(frame(Kind.RESPONSE_START));
    harness.produce(exchange, 200_000);
    node?.send(frame(Kind.END));
    await harness.quiesce();
    expect(exchange.ends).toEqual([]);
    exchange.stream.cancel("the client left");
    await harness.quiesce();
    expect(exchange.ends.map((end) => end.cause)).toEqual(["terminal"]);
    expect(harness.edge.streams + harness.node.streams).toBe(0);
  });

  test("a cancel that is not confirmed ends the stream after 10 s, and a late terminal settles it", async () => {
    const harness = new Harness();
    const settled: string[] = [];
    const ends: StreamEnd[] = [];
    const stream = harness.edge.open(request(), [], {
      closed: (end) => void ends.push(end),
      settled: () => void settled.push("settled"),
    });
    await harness.quiesce();
    stream.cancel("test");
    await harness.quiesce();
    await harness.clock.advance(9_999);
    expect(ends).toEqual([]);
    await harness.clock.advance(1);
    expect(ends.map((end) => end.cause)).toEqual(["cancel_timeout"]);
    expect(settled).toEqual([]);
    harness.atNode.get(stream.id)?.send(frame(Kind.ERROR));
    await harness.quiesce();
    expect(settled).toEqual(["settled"]);
    expect(ends).toHaveLength(1);
  });

  test("a stream that is cancelled before it was sent never reaches the Node", async () => {
    const harness = new Harness();
    const exchange = harness.open(100_000);
    exchange.stream.cancel("test");
    await harness.quiesce();
    expect(exchange.ends.map((end) => end.cause)).toEqual(["unsent"]);
    expect(harness.atNode.size).toBe(0);
    const next = harness.open();
    await harness.quiesce();
    expect(harness.nodeSide(next)).toBeDefined();
  });

  test("losing the connection ends every stream once", async () => {
    const harness = new Harness();
    const exchange = harness.open();
    await harness.quiesce();
    const lost = new WireError("connection_lost", "test");
    harness.edge.close(lost);
    harness.edge.close(new WireError("closed", "again"));
    await harness.clock.settle();
    expect(exchange.ends).toEqual([{ cause: "connection", sent: true, error: lost }]);
    expect(exchange.failures).toEqual([lost]);
    expect(() => harness.open()).toThrow(lost);
  });

  describe("what breaks the rules of a stream ends that stream only", () => {
    test.each<[string, readonly Kind[]]>([
      ["a body before the start", [Kind.BODY]],
      ["an end before the start", [Kind.END]],
      ["a second start", [Kind.RESPONSE_START, Kind.RESPONSE_START]],
    ])("%s", async (_, kinds) => {
      const harness = new Harness();
      const bad = harness.open();
      const good = harness.open();
      await harness.quiesce();
      for (const kind of kinds) {
        const value = create(ProviderTunnelFrameSchema, { kind, body: Uint8Array.of(0) });
        harness.nodeSide(bad)?.send({ case: "providerTunnelFrame", value });
      }
      await harness.quiesce();
      expect(bad.failures.map((failure) => failure.code)).toEqual(["stream_protocol_error"]);
      harness.nodeSide(bad)?.send(frame(Kind.ERROR));
      harness.nodeSide(good)?.send(frame(Kind.RESPONSE_START));
      harness.nodeSide(good)?.send(frame(Kind.END));
      await harness.quiesce();
      expect(bad.ends).toHaveLength(1);
      expect(good.kinds).toEqual([Kind.RESPONSE_START, Kind.END]);
      expect(harness.edge.streams).toBe(0);
    });

    test("a gap in the sequence", async () => {
      const harness = new Harness();
      const exchange = harness.open();
      await harness.quiesce();
      const value = create(ProviderTunnelFrameSchema, { kind: Kind.RESPONSE_START, sequence: 2 });
      harness.edge.receive(exchange.stream.id, { case: "providerTunnelFrame", value }, 10);
      await harness.clock.settle();
      expect(exchange.failures.map((failure) => failure.code)).toEqual(["stream_protocol_error"]);
    });
  });

  describe("what breaks the rules of the connection", () => {
    const cases: ReadonlyArray<readonly [string, (harness: Harness) => void, string]> = [
      [
        "a frame for a stream that was never opened",
        (h) => h.edge.receive(7, frame(Kind.END), 5),
        "protocol_error",
      ],
      [
        "a stream that is opened twice",
        (h) => [h.node.receive(1, request(), 5), h.node.receive(1, request(), 5)],
        "protocol_error",
      ],
      [
        "a body beyond the connection window",
        (h) => h.node.receive(1, request(), LIMITS.connectionWindowBytes + 1),
        "flow_control",
      ],
      [
        "credit from nowhere",
        (h) =>
          h.edge.receive(
            0,
            { case: "streamCredit", value: { $typeName: "iop.StreamCredit", limit: 10n ** 9n } },
            5,
          ),
        "flow_control",
      ],
      ["a terminal outside a stream", (h) => h.edge.receive(0, frame(Kind.END), 5), "protocol_error"],
      [
        "a flood of heartbeats",
        (h) => {
          for (let i = 0; i <= 100; i++)
            h.edge.receive(0, { case: "heartbeat", value: { $typeName: "iop.Heartbeat", sequence: i } }, 2);
        },
        "protocol_error",
      ],
    ];
    test.each(cases)("%s", (_, act, code) => {
      const harness = new Harness();
      let failure: unknown;
      try {
        act(harness);
      } catch (error) {
        failure = error;
      }
      expect(WireError.is(failure) ? failure.code : failure).toBe(code);
    });
  });

  test("frames of closed streams are dropped, counted, and charged to the connection", async () => {
    const harness = new Harness();
    const exchange = harness.open();
    await harness.quiesce();
    harness.nodeSide(exchange)?.send(frame(Kind.ERROR));
    await harness.quiesce();
    const before = harness.edge.counters.lateMessages;
    for (let i = 0; i < 100; i++) {
      harness.edge.receive(exchange.stream.id, frame(Kind.BODY), 100_000);
      // The grant for it leaves; the real Node, which sent nothing, does not hear of it.
      const writer = new FrameWriter();
      harness.edge.take(writer, 0);
      expect(writer.finish()).toHaveLength(1);
    }
    expect(harness.edge.counters.lateMessages).toBe(before + 100);
    expect(harness.edge.connectionCredit.held).toBe(0);
    expect(() => harness.edge.receive(exchange.stream.id, frame(Kind.BODY), 200_000)).toThrow(WireError);
  });
});

function expectFinished(exchange: Exchange): void {
  expect(exchange.ends).toHaveLength(1);
  const terminals = exchange.kinds.filter((kind) => TERMINALS.includes(kind));
  if (exchange.cancelled) {
    expect(terminals.length + exchange.failures.length).toBeLessThanOrEqual(1);
    return;
  }
  expect(exchange.failures).toEqual([]);
  expect(terminals).toHaveLength(1);
  expect(TERMINALS).toContain(exchange.kinds.at(-1));
  expect(exchange.consumed).toBe(exchange.produced);
}
