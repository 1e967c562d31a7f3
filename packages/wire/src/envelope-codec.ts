import { create, fromBinary, toBinary } from "@bufbuild/protobuf";

import { EnvelopeSchema } from "./gen/iop/runtime_pb.ts";
import { decodeHot, writePrefix } from "./hot-codec.ts";
import type { WireMessage } from "./message.ts";
import { WireError } from "./wire-error.ts";

const PREFIX_BYTES = 4;

/** An Envelope of a known member, or, where `message` is undefined, of one that this version does not know. */
export interface DecodedEnvelope {
  readonly stream: number;
  readonly message: WireMessage | undefined;
}

/** One whole frame: prefix and Envelope. */
export function encodeFrame(stream: number, message: WireMessage): Uint8Array {
  const payload = toBinary(EnvelopeSchema, create(EnvelopeSchema, { stream, message }));
  const frame = new Uint8Array(PREFIX_BYTES + payload.length);
  writePrefix(frame, 0, payload.length);
  frame.set(payload, PREFIX_BYTES);
  return frame;
}

/**
 * Decodes a frame's payload. Byte fields are views of it.
 * @throws WireError `protocol_error` where it is not an Envelope.
 */
export function decodeEnvelope(payload: Uint8Array): DecodedEnvelope {
  const hot = decodeHot(payload);
  if (hot !== undefined) return hot;
  try {
    const { stream, message } = fromBinary(EnvelopeSchema, payload);
    return { stream, message: message.case === undefined ? undefined : message };
  } catch (error) {
    throw new WireError("protocol_error", "undecodable envelope", { cause: error });
  }
}
