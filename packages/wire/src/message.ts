import type { Envelope } from "./gen/iop/runtime_pb.ts";
import { isTerminalKind } from "./tunnel-order.ts";

/** Name of an Envelope's member. */
export type MessageCase = Exclude<Envelope["message"]["case"], undefined>;

/** Any message: `{ case, value }`. */
export type WireMessage = Extract<Envelope["message"], { case: MessageCase }>;

/** The value of one member. */
export type MessageValue<C extends MessageCase> = Extract<WireMessage, { case: C }>["value"];

/** Cases that the session answers itself; nobody else sees them. */
export type ControlCase = "streamCredit" | "heartbeat" | "heartbeatAck" | "cancelRequest" | "goAway";

/** Cases that open a stream. */
export type OpeningCase = "providerTunnelRequest";

/** Cases that travel on a stream, in its order. */
export type StreamCase = OpeningCase | "providerTunnelFrame" | "part";

/** A message that opens a stream. */
export type OpeningMessage = Extract<WireMessage, { case: OpeningCase }>;

/** A message on a stream. */
export type StreamMessage = Extract<WireMessage, { case: StreamCase }>;

/** A message of the session itself (stream 0). */
export type SessionMessage = Exclude<WireMessage, { case: StreamCase | ControlCase }>;

/** Whether a message may stand on a stream. */
export function isStreamMessage(message: WireMessage): message is StreamMessage {
  return message.case === "providerTunnelFrame" || message.case === "part" || isOpening(message);
}

/** Whether a message opens a stream. */
export function isOpening(message: WireMessage): message is OpeningMessage {
  return message.case === "providerTunnelRequest";
}

/** Whether a message is the last of its stream. */
export function isTerminal(message: StreamMessage): boolean {
  return message.case === "providerTunnelFrame" && isTerminalKind(message.value.kind);
}

/** Whether a message is the session's own. */
export function isSessionMessage(message: WireMessage): message is SessionMessage {
  switch (message.case) {
    case "registerRequest":
    case "registerResponse":
    case "nodeReadyRequest":
    case "nodeReadyResponse":
    case "providerStatus":
    case "configRefreshRequest":
    case "configRefreshResponse":
      return true;
    default:
      return false;
  }
}
