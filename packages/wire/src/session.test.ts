import { create } from "@bufbuild/protobuf";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";

import { encodeFrame } from "./envelope-codec.ts";
import { DEFAULT_FLOW_LIMITS } from "./flow-limits.ts";
import type { GoAway } from "./gen/iop/runtime_pb.ts";
import {
  GoAwayCode,
  NodeReadyRequestSchema,
  NodeReadyResponseSchema,
  ProviderTunnelFrame_Kind as Kind,
  ProviderTunnelFrameSchema,
  ProviderTunnelRequestSchema,
} from "./gen/iop/runtime_pb.ts";
import { memoryTransport } from "./memory.ts";
import type { SessionMessage } from "./message.ts";
import { receiveBody } from "./part-receiver.ts";
import type { SessionHandlers } from "./session.ts";
import { Session } from "./session.ts";
import type { Connection } from "./transport.ts";
import type { VirtualClock } from "./virtual-clock.ts";
import { createVirtualClock } from "./virtual-clock.ts";
import type { WireError } from "./wire-error.ts";

class Seen implements SessionHandlers {
  readonly messages: SessionMessage[] = [];
  readonly goAways: GoAway[] = [];
  readonly ends: WireError[] = [];
  opened: NonNullable<SessionHandlers["opened"]> = () => {};
  message(message: SessionMessage): void {
    this.messages.push(message);
  }
  goAway(goAway: GoAway): void {
    this.goAways.push(goAway);
  }
  closed(error: WireError): void {
    this.ends.push(error);
  }
}

interface Peers {
  readonly clock: VirtualClock;
  readonly edge: Session;
  readonly node: Session;
  readonly atEdge: Seen;
  readonly atNode: Seen;
  readonly transport: ReturnType<typeof memoryTransport>;
}

async function connect(): Promise<Peers> {
  const clock = createVirtualClock();
  const transport = memoryTransport({ clock });
  const atEdge = new Seen();
  const atNode = new Seen();
  const accepted = Promise.withResolvers<Session>();
  await transport.listen({
    accept: (connection) =>
      accepted.resolve(
        new Session({ connection, role: "edge", clock, handlers: atEdge, maxFrameBytes: 65_536 }),
      ),
  });
  const connection = await transport.dial({ signal: new AbortController().signal });
  const node = new Session({ connection, role: "node", clock, handlers: atNode, maxFrameBytes: 1_048_576 });
  const edge = await accepted.promise;
  edge.agree(DEFAULT_FLOW_LIMITS);
  node.agree(DEFAULT_FLOW_LIMITS);
  return { clock, edge, node, atEdge, atNode, transport };
}

/** A raw peer: what it writes is not checked by anyone on its side. */
async function rawPeer(): Promise<{
  clock: VirtualClock;
  peer: Connection;
  atEdge: Seen;
  edge: Session;
  peerClosed: () => boolean;
}> {
  const clock = createVirtualClock();
  const transport = memoryTransport({ clock });
  const atEdge = new Seen();
  const accepted = Promise.withResolvers<Session>();
  await transport.listen({
    accept: (connection) =>
      accepted.resolve(
        new Session({ connection, role: "edge", clock, handlers: atEdge, maxFrameBytes: 65_536 }),
      ),
  });
  const peer = await transport.dial({ signal: new AbortController().signal });
  let closed = false;
  peer.open({ data: () => {}, drained: () => {}, closed: () => void (closed = true) });
  return { clock, peer, atEdge, edge: await accepted.promise, peerClosed: () => closed };
}

const ready = (nodeId: string): SessionMessage => ({
  case: "nodeReadyRequest",
  value: create(NodeReadyRequestSchema, { nodeId }),
});

describe("request and response", () => {
  test("the answer reaches the one who asked, other messages the handler", async () => {
    const { clock, edge, node, atEdge, atNode } = await connect();
    const answer = node.request(ready("n"), "nodeReadyResponse", { timeoutMs: 5000 });
    await clock.settle();
    expect(atEdge.messages.map((message) => message.case)).toEqual(["nodeReadyRequest"]);
    edge.send({ case: "nodeReadyResponse", value: create(NodeReadyResponseSchema, { ready: true }) });
    await clock.settle();
    expect((await answer).value.ready).toBe(true);
    expect(atNode.messages).toEqual([]);
  });

  test("ends by deadline, by signal and with the session, and leaves no timer", async () => {
    const { clock, node, edge } = await connect();
    const before = clock.pending;
    const late = node.request(ready("n"), "nodeReadyResponse", { timeoutMs: 1000 });
    const lateEnd = expect(late).rejects.toMatchObject({ code: "timeout" });
    await clock.advance(1000);
    await lateEnd;
    const abort = new AbortController();
    const aborted = node.request(ready("n"), "nodeReadyResponse", { timeoutMs: 1000, signal: abort.signal });
    abort.abort(new Error("enough"));
    await expect(aborted).rejects.toThrow("enough");
    expect(clock.pending).toBe(before);
    const cut = node.request(ready("n"), "nodeReadyResponse", { timeoutMs: 1000 });
    const cutEnd = expect(cut).rejects.toMatchObject({ code: "going_away" });
    edge.close(GoAwayCode.DRAINING, "over");
    await clock.settle();
    await cutEnd;
  });
});

describe("heartbeat", () => {
  test("two silent sides keep each other alive", async () => {
    const { clock, atEdge, atNode, edge } = await connect();
    await clock.advance(120_000);
    expect(atEdge.ends).toEqual([]);
    expect(atNode.ends).toEqual([]);
    expect(edge.roundTripMs).toBeDefined();
  });

  test("a dead network is noticed 5 s after the last byte", async () => {
    const { clock, atEdge, transport } = await connect();
    await clock.advance(2_000);
    transport.links[0]?.stall();
    await clock.advance(4_990);
    expect(atEdge.ends).toEqual([]);
    await clock.advance(20);
    expect(atEdge.ends.map((error) => error.code)).toEqual(["heartbeat_timeout"]);
  });

  test("any received byte counts, sent ones do not", async () => {
    const { clock, peer, atEdge } = await rawPeer();
    const length = Uint8Array.of(0, 0, 0x10, 0);
    peer.write([length]);
    for (let second = 0; second < 20; second++) {
      await clock.advance(1000);
      peer.write([Uint8Array.of(1)]);
    }
    expect(atEdge.ends).toEqual([]);
    await clock.advance(5_100);
    expect(atEdge.ends.map((error) => error.code)).toEqual(["heartbeat_timeout"]);
  });

  test("what is already waiting is read before the peer is given up", async () => {
    const { clock, peer, atEdge } = await rawPeer();
    await clock.advance(4_999);
    // The peer's beat has been delivered to this side but not read: it is in the queue of deferred work
    // when the timer fires.
    const end = clock.advance(1);
    peer.write([encodeFrame(0, { case: "heartbeat", value: { $typeName: "iop.Heartbeat", sequence: 1 } })]);
    await end;
    expect(atEdge.ends).toEqual([]);
  });

  test("after a sleep the peer has 2 s to answer a probe", async () => {
    const alive = await connect();
    await alive.clock.advance(3_000);
    alive.clock.jumpWall(3_600_000);
    await alive.clock.advance(10_000);
    expect(alive.atEdge.ends).toEqual([]);

    const dead = await rawPeer();
    await dead.clock.advance(1_900);
    dead.clock.jumpWall(3_600_000);
    await dead.clock.advance(100 + 1_990);
    expect(dead.atEdge.ends).toEqual([]);
    await dead.clock.advance(20);
    expect(dead.atEdge.ends.map((error) => error.code)).toEqual(["heartbeat_timeout"]);
  });
});

/** What a probe has said so far. */
function answerOf(probe: Promise<boolean>): () => boolean | undefined {
  let answer: boolean | undefined;
  void probe.then((alive) => {
    answer = alive;
  });
  return () => answer;
}

describe("a probe", () => {
  test("is answered by a living peer at once, and leaves no timer", async () => {
    const { clock, edge } = await connect();
    const before = clock.pending;
    const [one, other] = [answerOf(edge.probe(1_000)), answerOf(edge.probe(1_000))];
    await clock.settle();
    expect([one(), other()]).toEqual([true, true]);
    expect(clock.pending).toBe(before);
    expect(edge.roundTripMs).toBe(0);
  });

  test("takes any byte, also of half a frame, for an answer", async () => {
    const { clock, peer, edge } = await rawPeer();
    const answer = answerOf(edge.probe(1_000));
    await clock.advance(900);
    expect(answer()).toBeUndefined();
    peer.write([Uint8Array.of(0)]);
    await clock.settle();
    expect(answer()).toBe(true);
  });

  test("of a silent peer is false in time, and ends nothing", async () => {
    const { clock, edge, transport, atEdge } = await connect();
    const before = clock.pending;
    transport.links[0]?.stall();
    const answer = answerOf(edge.probe(1_000));
    await clock.advance(999);
    expect(answer()).toBeUndefined();
    await clock.advance(1);
    expect(answer()).toBe(false);
    expect(clock.pending).toBe(before);
    expect(atEdge.ends).toEqual([]);
  });

  test("reads what is already waiting before it says no", async () => {
    const { clock, peer, edge } = await rawPeer();
    const answer = answerOf(edge.probe(1_000));
    await clock.advance(999);
    const end = clock.advance(1);
    peer.write([Uint8Array.of(0)]);
    await end;
    expect(answer()).toBe(true);
  });

  test("ends with the session, and is false after it", async () => {
    const { clock, edge } = await connect();
    const during = answerOf(edge.probe(1_000));
    edge.close(GoAwayCode.DRAINING, "over");
    const after = answerOf(edge.probe(1_000));
    await clock.settle();
    expect([during(), after()]).toEqual([false, false]);
    await clock.advance(2_000);
    expect(clock.pending).toBe(0);
  });
});

describe("a peer that does not keep to the rules", () => {
  test.each<[string, Uint8Array, string]>([
    ["a frame of length 0", Uint8Array.of(0, 0, 0, 0), "protocol_error"],
    ["a frame over the limit", Uint8Array.of(0, 1, 0, 1), "frame_too_large"],
    ["text", new TextEncoder().encode("GET / HTTP/1.1\r\n\r\n"), "frame_too_large"],
    ["garbage in a frame", Uint8Array.of(0, 0, 0, 2, 0xff, 0xff), "protocol_error"],
    [
      "a stream before registration",
      encodeFrame(5, { case: "part", value: { $typeName: "iop.Part", last: true, data: Uint8Array.of(1) } }),
      "protocol_error",
    ],
  ])("%s ends the session with its code and a GoAway", async (_, bytes, code) => {
    const { clock, peer, atEdge, peerClosed } = await rawPeer();
    peer.write([bytes]);
    await clock.settle();
    expect(atEdge.ends.map((error) => error.code)).toEqual([code]);
    await clock.advance(1_000);
    expect(peerClosed()).toBe(true);
    expect(clock.pending).toBe(0);
  });

  test("random bytes never throw into the transport", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.uint8Array({ minLength: 1, maxLength: 200 }), { maxLength: 10 }),
        async (chunks) => {
          const { clock, peer, atEdge } = await rawPeer();
          for (const chunk of chunks) peer.write([chunk]);
          await clock.settle();
          expect(atEdge.ends.length).toBeLessThanOrEqual(1);
          await clock.advance(10_000);
          expect(atEdge.ends).toHaveLength(1);
        },
      ),
      { numRuns: 50 },
    );
  });

  test("the other side hears the code", async () => {
    const { clock, edge, atNode } = await connect();
    edge.close(GoAwayCode.SUPERSEDED, "replaced", 60_000);
    await clock.settle();
    expect(atNode.goAways).toMatchObject([
      { code: GoAwayCode.SUPERSEDED, reason: "replaced", retryAfterMs: 60_000 },
    ]);
    expect(atNode.ends.map((error) => error.message)).toEqual(["superseded: replaced"]);
  });
});

describe("streams over a connection", () => {
  test("a body of several parts arrives whole, a response in order", async () => {
    const { clock, edge, node, atNode } = await connect();
    const body = Uint8Array.from({ length: 700_000 }, (_, index) => index & 0xff);
    const received = Promise.withResolvers<Uint8Array>();
    atNode.opened = (stream, opening) => {
      const options = {
        head: opening.value.body,
        lengthBytes: Number(opening.value.bodyLength),
        limitBytes: 1e6,
      };
      void receiveBody(stream, options).then((whole) => {
        received.resolve(whole);
        stream.send({
          case: "providerTunnelFrame",
          value: create(ProviderTunnelFrameSchema, { kind: Kind.RESPONSE_START, status: 200 }),
        });
        stream.sendBody(whole.subarray(0, 50_000));
        stream.send({
          case: "providerTunnelFrame",
          value: create(ProviderTunnelFrameSchema, { kind: Kind.END }),
        });
      });
    };
    const ends: string[] = [];
    const stream = edge.open(
      {
        case: "providerTunnelRequest",
        value: create(ProviderTunnelRequestSchema, {
          body: body.slice(0, 100),
          bodyLength: BigInt(body.length),
        }),
      },
      [body.subarray(100, 70_000), body.subarray(70_000)],
      { closed: (end) => void ends.push(end.cause) },
    );
    const kinds: Kind[] = [];
    let bytes = 0;
    const reading = (async () => {
      for await (const message of stream) {
        if (message.case !== "providerTunnelFrame") continue;
        kinds.push(message.value.kind);
        bytes += message.value.body.length;
      }
    })();
    for (let round = 0; round < 50 && ends.length === 0; round++) await clock.settle();
    await reading;
    expect(await received.promise).toEqual(body);
    expect(kinds[0]).toBe(Kind.RESPONSE_START);
    expect(kinds.at(-1)).toBe(Kind.END);
    expect(bytes).toBe(50_000);
    expect(ends).toEqual(["terminal"]);
    expect(edge.streams + node.streams).toBe(0);
  });

  test("a body over the limit is refused before it is allocated", async () => {
    const { clock, edge, atNode } = await connect();
    const refused = Promise.withResolvers<unknown>();
    atNode.opened = (stream, opening) => {
      const options = {
        head: opening.value.body,
        lengthBytes: Number(opening.value.bodyLength),
        limitBytes: 1000,
      };
      void receiveBody(stream, options).catch(refused.resolve);
    };
    edge.open(
      {
        case: "providerTunnelRequest",
        value: create(ProviderTunnelRequestSchema, { bodyLength: 10n ** 12n }),
      },
      [],
      {},
    );
    await clock.settle();
    expect(await refused.promise).toMatchObject({ code: "body_too_large" });
  });
});
