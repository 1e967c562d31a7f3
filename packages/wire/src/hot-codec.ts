import type { ProviderTunnelFrame } from "./gen/iop/runtime_pb.ts";
import { ProviderTunnelFrame_Kind } from "./gen/iop/runtime_pb.ts";
import type { WireMessage } from "./message.ts";

/**
 * Hand-written codec of what is sent most: tunnel bodies, parts, credit, heartbeats. It writes the very
 * bytes that the generated codec writes and reads its own canonical form; anything else (unknown
 * fields, other field order) is left to the generated codec. Property-tested to be equal to it.
 */

// Tags: field number << 3 | wire type (0 varint, 2 length-delimited). Envelope.stream is field 1.
const STREAM = 0x08;
const TUNNEL_FRAME = 0x12;
const PART = 0x1a;
const CREDIT = 0x22;
const HEARTBEAT = 0x2a;
const HEARTBEAT_ACK = 0x32;
const FIELD_1 = 0x08;
const FIELD_2 = 0x10;
const BYTES_15 = 0x7a;
const PREFIX_BYTES = 4;

/** Longest head that the functions below write, prefix included. */
export const MAX_HEAD_BYTES = 48;

/** Bytes of `value` as a varint; `value` is a safe integer, not negative. */
export function varintBytes(value: number): number {
  let bytes = 1;
  for (let rest = value; rest >= 0x80; rest = Math.floor(rest / 0x80)) bytes++;
  return bytes;
}

function writeVarint(into: Uint8Array, at: number, value: number): number {
  let rest = value;
  while (rest >= 0x80) {
    into[at++] = (rest & 0x7f) | 0x80;
    rest = rest > 0x7fffffff ? Math.floor(rest / 0x80) : rest >>> 7;
  }
  into[at++] = rest;
  return at;
}

/** Writes the length prefix of a frame of `length` bytes. Returns the offset after it. */
export function writePrefix(into: Uint8Array, at: number, length: number): number {
  into[at] = length >>> 24;
  into[at + 1] = length >>> 16;
  into[at + 2] = length >>> 8;
  into[at + 3] = length;
  return at + PREFIX_BYTES;
}

function streamBytes(stream: number): number {
  return stream === 0 ? 0 : 1 + varintBytes(stream);
}

function writeStream(into: Uint8Array, at: number, stream: number): number {
  if (stream === 0) return at;
  into[at++] = STREAM;
  return writeVarint(into, at, stream);
}

function bytesField(length: number): number {
  return length === 0 ? 0 : 1 + varintBytes(length) + length;
}

function tunnelBodyInner(sequence: number, bodyLength: number): number {
  return (sequence === 0 ? 0 : 1 + varintBytes(sequence)) + 2 + bytesField(bodyLength);
}

/** Length (without prefix) of the frame that carries a tunnel body of `bodyLength` bytes. */
export function tunnelBodyLength(stream: number, sequence: number, bodyLength: number): number {
  const inner = tunnelBodyInner(sequence, bodyLength);
  return streamBytes(stream) + 1 + varintBytes(inner) + inner;
}

/** Writes prefix and head of a tunnel body frame; the body's bytes follow it. Returns the offset after the head. */
export function writeTunnelBodyHead(
  into: Uint8Array,
  start: number,
  stream: number,
  sequence: number,
  bodyLength: number,
): number {
  let at = writePrefix(into, start, tunnelBodyLength(stream, sequence, bodyLength));
  at = writeStream(into, at, stream);
  into[at++] = TUNNEL_FRAME;
  at = writeVarint(into, at, tunnelBodyInner(sequence, bodyLength));
  if (sequence !== 0) {
    into[at++] = FIELD_1;
    at = writeVarint(into, at, sequence);
  }
  into[at++] = FIELD_2;
  into[at++] = ProviderTunnelFrame_Kind.BODY;
  if (bodyLength > 0) {
    into[at++] = BYTES_15;
    at = writeVarint(into, at, bodyLength);
  }
  return at;
}

function partInner(last: boolean, dataLength: number): number {
  return (last ? 2 : 0) + bytesField(dataLength);
}

/** Length (without prefix) of the frame that carries a part of `dataLength` bytes. */
export function partLength(stream: number, last: boolean, dataLength: number): number {
  const inner = partInner(last, dataLength);
  return streamBytes(stream) + 1 + varintBytes(inner) + inner;
}

/** Writes prefix and head of a part; its bytes follow it. Returns the offset after the head. */
export function writePartHead(
  into: Uint8Array,
  start: number,
  stream: number,
  last: boolean,
  dataLength: number,
): number {
  let at = writePrefix(into, start, partLength(stream, last, dataLength));
  at = writeStream(into, at, stream);
  into[at++] = PART;
  at = writeVarint(into, at, partInner(last, dataLength));
  if (last) {
    into[at++] = FIELD_1;
    into[at++] = 1;
  }
  if (dataLength > 0) {
    into[at++] = BYTES_15;
    at = writeVarint(into, at, dataLength);
  }
  return at;
}

function writeSingleVarint(
  into: Uint8Array,
  start: number,
  stream: number,
  tag: number,
  value: number,
): number {
  const inner = value === 0 ? 0 : 1 + varintBytes(value);
  let at = writePrefix(into, start, streamBytes(stream) + 2 + inner);
  at = writeStream(into, at, stream);
  into[at++] = tag;
  into[at++] = inner;
  if (value === 0) return at;
  into[at++] = FIELD_1;
  return writeVarint(into, at, value);
}

/** Writes a StreamCredit frame. `limit` is a safe integer. Returns the offset after it. */
export function writeCredit(into: Uint8Array, at: number, stream: number, limit: number): number {
  return writeSingleVarint(into, at, stream, CREDIT, limit);
}

/** Writes a Heartbeat frame. Returns the offset after it. */
export function writeHeartbeat(into: Uint8Array, at: number, sequence: number): number {
  return writeSingleVarint(into, at, 0, HEARTBEAT, sequence);
}

/** Writes a HeartbeatAck frame. Returns the offset after it. */
export function writeHeartbeatAck(into: Uint8Array, at: number, sequence: number): number {
  return writeSingleVarint(into, at, 0, HEARTBEAT_ACK, sequence);
}

// A reader of canonical varints below 2^53; `#at` runs past the end where there is none.
class Reader {
  at = 0;
  readonly bytes: Uint8Array;

  constructor(bytes: Uint8Array) {
    this.bytes = bytes;
  }

  varint(): number {
    const { bytes } = this;
    let byte = bytes[this.at++] ?? 0;
    if (byte < 0x80) return byte;
    let value = byte & 0x7f;
    let scale = 0x80;
    for (let index = 1; index < 8; index++) {
      byte = bytes[this.at++] ?? 0;
      value += (byte & 0x7f) * scale;
      if (byte < 0x80) return value <= Number.MAX_SAFE_INTEGER ? value : this.#fail();
      scale *= 0x80;
    }
    return this.#fail();
  }

  #fail(): number {
    this.at = Number.POSITIVE_INFINITY;
    return 0;
  }
}

/** What `decodeHot` found. */
export interface DecodedMessage {
  readonly stream: number;
  readonly message: WireMessage;
}

/** A tunnel body frame as the generated code shapes it. */
export function tunnelBody(sequence: number, body: Uint8Array): ProviderTunnelFrame {
  return {
    $typeName: "iop.ProviderTunnelFrame",
    sequence,
    kind: ProviderTunnelFrame_Kind.BODY,
    status: 0,
    headers: [],
    metadata: {},
    errorCode: "",
    errorMessage: "",
    body,
  };
}

/** Decodes a hot message in canonical form; undefined where it is anything else. Bodies are views of `payload`. */
export function decodeHot(payload: Uint8Array): DecodedMessage | undefined {
  const reader = new Reader(payload);
  let stream = 0;
  let tag = payload[reader.at++];
  if (tag === STREAM) {
    stream = reader.varint();
    if (stream === 0 || stream > 0xffffffff) return undefined;
    tag = payload[reader.at++];
  }
  if (tag !== TUNNEL_FRAME && tag !== PART && tag !== CREDIT && tag !== HEARTBEAT && tag !== HEARTBEAT_ACK)
    return undefined;
  const length = reader.varint();
  if (reader.at + length !== payload.length) return undefined;
  switch (tag) {
    case TUNNEL_FRAME: {
      if (payload[reader.at++] !== FIELD_1) return undefined;
      const sequence = reader.varint();
      if (sequence > 0xffffffff) return undefined;
      if (payload[reader.at] !== FIELD_2 || payload[reader.at + 1] !== ProviderTunnelFrame_Kind.BODY)
        return undefined;
      reader.at += 2;
      if (payload[reader.at++] !== BYTES_15) return undefined;
      const size = reader.varint();
      if (reader.at + size !== payload.length) return undefined;
      return {
        stream,
        message: { case: "providerTunnelFrame", value: tunnelBody(sequence, payload.subarray(reader.at)) },
      };
    }
    case PART: {
      let last = false;
      if (payload[reader.at] === FIELD_1) {
        if (payload[reader.at + 1] !== 1) return undefined;
        last = true;
        reader.at += 2;
      }
      if (payload[reader.at++] !== BYTES_15) return undefined;
      const size = reader.varint();
      if (reader.at + size !== payload.length) return undefined;
      return {
        stream,
        message: { case: "part", value: { $typeName: "iop.Part", last, data: payload.subarray(reader.at) } },
      };
    }
    default: {
      let value = 0;
      if (length > 0) {
        if (payload[reader.at++] !== FIELD_1) return undefined;
        value = reader.varint();
        if (reader.at !== payload.length) return undefined;
      }
      if (tag === CREDIT) {
        return {
          stream,
          message: { case: "streamCredit", value: { $typeName: "iop.StreamCredit", limit: BigInt(value) } },
        };
      }
      if (value > 0xffffffff) return undefined;
      return tag === HEARTBEAT
        ? { stream, message: { case: "heartbeat", value: { $typeName: "iop.Heartbeat", sequence: value } } }
        : {
            stream,
            message: { case: "heartbeatAck", value: { $typeName: "iop.HeartbeatAck", sequence: value } },
          };
    }
  }
}
