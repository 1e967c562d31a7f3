import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";

import { decodeEnvelope, encodeFrame } from "./envelope-codec.ts";
import { FrameWriter } from "./frame-writer.ts";
import {
  EnvelopeSchema,
  ProviderTunnelFrame_Kind,
  ProviderTunnelRequestSchema,
} from "./gen/iop/runtime_pb.ts";
import {
  decodeHot,
  MAX_HEAD_BYTES,
  partLength,
  tunnelBody,
  tunnelBodyLength,
  writeCredit,
  writeHeartbeat,
  writeHeartbeatAck,
  writePartHead,
  writeTunnelBodyHead,
} from "./hot-codec.ts";
import type { WireMessage } from "./message.ts";
import { WireError } from "./wire-error.ts";

const uint32 = fc.oneof(fc.nat(300), fc.integer({ min: 1, max: 0xffffffff }));
const stream = fc.oneof(fc.constant(0), uint32);
const body = fc.oneof(
  fc.uint8Array({ maxLength: 300 }),
  fc.nat(20_000).map((length) => new Uint8Array(length).fill(7)),
);

function written(write: (into: Uint8Array, at: number) => number, data = new Uint8Array(0)): Uint8Array {
  const writer = new FrameWriter();
  const into = writer.reserve();
  const start = writer.offset;
  const end = write(into, start);
  expect(end - start).toBeLessThanOrEqual(MAX_HEAD_BYTES);
  writer.commit(end);
  writer.push(data);
  const length = writer.bytes;
  const bytes = new Uint8Array(length);
  let at = 0;
  for (const chunk of writer.finish()) {
    bytes.set(chunk, at);
    at += chunk.length;
  }
  return bytes;
}

/** The hot codec writes `bytes` for `message`, and reads them as the generated codec does. */
function expectEqual(bytes: Uint8Array, id: number, message: WireMessage): void {
  expect(bytes).toEqual(encodeFrame(id, message));
  const payload = bytes.subarray(4);
  const generated = fromBinary(EnvelopeSchema, payload);
  const decoded = decodeEnvelope(payload);
  expect(decoded).toEqual({ stream: generated.stream, message: generated.message });
}

describe("the hot codec equals the generated one", () => {
  test("tunnel bodies", () => {
    fc.assert(
      fc.property(stream, uint32, body, (id, sequence, data) => {
        const bytes = written((into, at) => writeTunnelBodyHead(into, at, id, sequence, data.length), data);
        expectEqual(bytes, id, { case: "providerTunnelFrame", value: tunnelBody(sequence, data) });
        expect(tunnelBodyLength(id, sequence, data.length)).toBe(bytes.length - 4);
        if (data.length > 0 && sequence > 0) expect(decodeHot(bytes.subarray(4))).toBeDefined();
      }),
    );
  });

  test("parts", () => {
    fc.assert(
      fc.property(stream, fc.boolean(), body, (id, last, data) => {
        const bytes = written((into, at) => writePartHead(into, at, id, last, data.length), data);
        expectEqual(bytes, id, { case: "part", value: { $typeName: "iop.Part", last, data } });
        expect(partLength(id, last, data.length)).toBe(bytes.length - 4);
      }),
    );
  });

  test("credit and heartbeats", () => {
    const limit = fc.oneof(fc.nat(), fc.integer({ min: 0, max: Number.MAX_SAFE_INTEGER }));
    fc.assert(
      fc.property(stream, limit, uint32, (id, max, sequence) => {
        expectEqual(
          written((into, at) => writeCredit(into, at, id, max)),
          id,
          { case: "streamCredit", value: { $typeName: "iop.StreamCredit", limit: BigInt(max) } },
        );
        expectEqual(
          written((into, at) => writeHeartbeat(into, at, sequence)),
          0,
          { case: "heartbeat", value: { $typeName: "iop.Heartbeat", sequence } },
        );
        expectEqual(
          written((into, at) => writeHeartbeatAck(into, at, sequence)),
          0,
          { case: "heartbeatAck", value: { $typeName: "iop.HeartbeatAck", sequence } },
        );
      }),
    );
  });

  test("whatever bytes come, both read the same or both refuse", () => {
    const nearlyHot = fc
      .tuple(
        uint32,
        uint32,
        fc.uint8Array({ maxLength: 40 }),
        fc.array(fc.tuple(fc.nat(60), fc.nat(255)), { maxLength: 3 }),
      )
      .map(([id, sequence, data, edits]) => {
        const bytes = written(
          (into, at) => writeTunnelBodyHead(into, at, id, sequence, data.length),
          data,
        ).subarray(4);
        for (const [at, value] of edits) if (at < bytes.length) bytes[at] = value;
        return bytes;
      });
    fc.assert(
      fc.property(fc.oneof(fc.uint8Array({ maxLength: 60 }), nearlyHot), (bytes) => {
        let expected: unknown;
        try {
          const { stream: id, message } = fromBinary(EnvelopeSchema, bytes);
          expected = { stream: id, message: message.case === undefined ? undefined : message };
        } catch {
          expected = "refused";
        }
        let actual: unknown;
        try {
          actual = decodeEnvelope(bytes);
        } catch (error) {
          actual = WireError.is(error) && error.code === "protocol_error" ? "refused" : error;
        }
        expect(withoutUnknown(actual)).toEqual(withoutUnknown(expected));
      }),
      { numRuns: 5000 },
    );
  });

  test("a member that this version does not know is no error", () => {
    const unknown = Uint8Array.of(0x08, 0x05, 0xa2, 0x06, 0x01, 0x00);
    expect(decodeEnvelope(unknown)).toEqual({ stream: 5, message: undefined });
  });

  test("other field order is left to the generated codec", () => {
    const inner = Uint8Array.of(0x7a, 0x01, 0x41, 0x10, ProviderTunnelFrame_Kind.BODY, 0x08, 0x01);
    const payload = Uint8Array.of(0x12, inner.length, ...inner, 0x08, 0x09);
    expect(decodeHot(payload)).toBeUndefined();
    expect(decodeEnvelope(payload)).toEqual({
      stream: 9,
      message: { case: "providerTunnelFrame", value: tunnelBody(1, Uint8Array.of(0x41)) },
    });
  });
});

test("every other message survives a round trip", () => {
  const message: WireMessage = {
    case: "providerTunnelRequest",
    value: create(ProviderTunnelRequestSchema, {
      operation: "chat_completions",
      headers: [
        { name: "a", value: "1" },
        { name: "a", value: "2" },
      ],
    }),
  };
  const frame = encodeFrame(3, message);
  expect(decodeEnvelope(frame.subarray(4))).toEqual({ stream: 3, message });
  expect(toBinary(EnvelopeSchema, create(EnvelopeSchema, { stream: 3, message }))).toEqual(frame.subarray(4));
});

// The generated codec keeps fields that it does not know; nobody looks at them.
function withoutUnknown(value: unknown): unknown {
  return JSON.parse(
    JSON.stringify(value, (key, inner: unknown) => {
      if (key === "$unknown") return undefined;
      return typeof inner === "bigint" ? String(inner) : inner;
    }) ?? "null",
  );
}
