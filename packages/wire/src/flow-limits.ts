import type { FlowLimits as WireFlowLimits } from "./gen/iop/runtime_pb.ts";
import { WireError } from "./wire-error.ts";

/** Longest payload of a tunnel body frame or a part, in bytes: a TLS record, and a fair turn in the round robin. */
export const MAX_BODY_BYTES: number = 16 * 1024;

/** Longest frame that opens a stream or starts a response, in bytes. */
export const MAX_HEAD_FRAME_BYTES: number = 64 * 1024;

/** Longest terminal or usage frame, in bytes. */
export const MAX_TERMINAL_FRAME_BYTES: number = 16 * 1024;

/** Bounds of one connection, in force in both directions. */
export interface FlowLimits {
  /** Unacknowledged bytes of one stream; at least 64 KiB. */
  readonly streamWindowBytes: number;
  /** Bytes under way over all streams; at least 128 KiB. Window over rate is the longest delay of a heartbeat. */
  readonly connectionWindowBytes: number;
  /** At least 64 KiB. */
  readonly maxFrameBytes: number;
  readonly maxStreams: number;
}

/** What both sides offer unless told otherwise. */
export const DEFAULT_FLOW_LIMITS: FlowLimits = {
  streamWindowBytes: 256 * 1024,
  connectionWindowBytes: 1024 * 1024,
  maxFrameBytes: 1024 * 1024,
  maxStreams: 16_384,
};

const MINIMUM: FlowLimits = {
  streamWindowBytes: 64 * 1024,
  connectionWindowBytes: 128 * 1024,
  maxFrameBytes: 64 * 1024,
  maxStreams: 1,
};

const LARGEST = 1024 * 1024 * 1024;

/**
 * Checks limits, ours or a peer's.
 * @throws WireError `invalid_argument` that names the bound.
 */
export function checkFlowLimits(limits: FlowLimits): FlowLimits {
  for (const name of ["streamWindowBytes", "connectionWindowBytes", "maxFrameBytes", "maxStreams"] as const) {
    const value = limits[name];
    if (!Number.isInteger(value) || value < MINIMUM[name] || value > LARGEST) {
      throw new WireError(
        "invalid_argument",
        `${name} is ${value}; it must be from ${MINIMUM[name]} to ${LARGEST}`,
      );
    }
  }
  return limits;
}

/** What holds between two sides: the lower of each bound. A bound that the peer left 0 is ours. */
export function agreeFlowLimits(ours: FlowLimits, theirs: WireFlowLimits | undefined): FlowLimits {
  return checkFlowLimits({
    streamWindowBytes: lower(ours.streamWindowBytes, theirs?.streamWindowBytes),
    connectionWindowBytes: lower(ours.connectionWindowBytes, theirs?.connectionWindowBytes),
    maxFrameBytes: lower(ours.maxFrameBytes, theirs?.maxFrameBytes),
    maxStreams: lower(ours.maxStreams, theirs?.maxStreams),
  });
}

function lower(ours: number, theirs: number | undefined): number {
  return theirs === undefined || theirs === 0 ? ours : Math.min(ours, theirs);
}
