/**
 * Of a connection (all its streams fail with it):
 * - `dial_failed`: no connection came about.
 * - `certificate_rejected`: what was dialled showed a certificate that is not trusted, not valid now, or not its own.
 * - `connection_lost`: the transport closed without a word.
 * - `going_away`: the peer closed with a GoAway; the message holds its code and reason.
 * - `heartbeat_timeout`: no byte came for the agreed time.
 * - `frame_too_large`, `protocol_error`, `flow_control`: the peer broke a rule; it was told so with a GoAway.
 * - `closed`: this side closed the session.
 *
 * Of one stream:
 * - `stream_protocol_error`: its messages broke spec rule 5 or its window; only this stream ended.
 * - `cancelled`: this side cancelled it.
 * - `cancel_timeout`: cancelled, and the peer did not confirm in time: its work may still be running.
 * - `too_many_streams`: the connection has as many as agreed.
 *
 * Of a call: `timeout`, `invalid_argument`, `body_too_large`.
 */
export type WireErrorCode =
  | "dial_failed"
  | "certificate_rejected"
  | "connection_lost"
  | "going_away"
  | "heartbeat_timeout"
  | "frame_too_large"
  | "protocol_error"
  | "flow_control"
  | "closed"
  | "stream_protocol_error"
  | "cancelled"
  | "cancel_timeout"
  | "too_many_streams"
  | "timeout"
  | "invalid_argument"
  | "body_too_large";

/** The one error class of the wire; switch on `code`. Messages never hold payload. */
export class WireError extends Error {
  override readonly name = "WireError";
  readonly code: WireErrorCode;

  constructor(code: WireErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }

  /** True for a WireError of any copy of this package. */
  static is(error: unknown): error is WireError {
    return (
      error instanceof Error &&
      error.name === "WireError" &&
      "code" in error &&
      typeof error.code === "string"
    );
  }

  /** `error` itself where it is one, else wrapped as `code`. */
  static from(error: unknown, code: WireErrorCode): WireError {
    if (WireError.is(error)) return error;
    return new WireError(code, error instanceof Error ? error.message : String(error), { cause: error });
  }
}
