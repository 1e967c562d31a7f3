// For hosts: sessions over a transport.
export type { Clock, Timer } from "./clock.ts";
export { realClock } from "./clock.ts";
export type { FlowLimits } from "./flow-limits.ts";
export { agreeFlowLimits, checkFlowLimits, DEFAULT_FLOW_LIMITS, MAX_BODY_BYTES } from "./flow-limits.ts";
export type { HeartbeatSettings } from "./heartbeat.ts";
export { DEFAULT_HEARTBEAT } from "./heartbeat.ts";
export { receiveBody } from "./part-receiver.ts";
export type { SessionHandlers, SessionOptions } from "./session.ts";
export { Session } from "./session.ts";
export type { WireErrorCode } from "./wire-error.ts";
export { WireError } from "./wire-error.ts";
export type { StreamEnd, StreamListener, WireStream } from "./wire-stream.ts";

// For transports of other kinds (conformance suite: `@iop/wire/conformance`).
export type { Connection, ConnectionHandlers, Listener, Transport } from "./transport.ts";

// For tests of what waits.
export type { VirtualClock } from "./virtual-clock.ts";
export { createVirtualClock } from "./virtual-clock.ts";

// The messages.
export type {
  MessageCase,
  MessageValue,
  OpeningMessage,
  SessionMessage,
  StreamMessage,
  WireMessage,
} from "./message.ts";
export * from "./gen/iop/runtime_pb.ts";
