import { EdgeError } from "@iop/edge-core";
import { HttpSurfaceError, modelNotFound } from "./http-surface-error.ts";
import { QUEUE_REASON } from "./own-headers.ts";

/** Nodes redial every two seconds, so asking sooner is in vain. */
const RETRY_UNAVAILABLE_SEC = "2";
const RETRY_BUSY_SEC = "1";

/**
 * Official SDKs retry 408, 409, 429 and 5xx unless told otherwise. The work may have run here, and a
 * second run of an agent is not harmless.
 */
const NO_RETRY = { "x-should-retry": "false" };

/** The answer for whatever `submitProviderTunnel` threw. */
export function fromSubmission(error: unknown, model: string): HttpSurfaceError {
  if (error instanceof HttpSurfaceError) return error;
  if (!EdgeError.is(error)) return internal(error);
  return error.code === "unknown_model"
    ? modelNotFound(model)
    : fromUpstream(error.code, error.message, error);
}

/** The answer for a tunnel that failed before its `start`; `code` is the Edge's or the Node's. */
export function fromUpstream(code: string, message: string, cause?: unknown): HttpSurfaceError {
  const answer = (status: number, headers: Readonly<Record<string, string>> = {}): HttpSurfaceError =>
    new HttpSurfaceError(code, status, message, { headers, cause });
  switch (code) {
    case "invalid_request":
    case "unsupported_operation":
      return answer(400);
    case "body_too_large":
      return answer(413);
    case "queue_full":
    case "queue_timeout":
      return answer(429, { "retry-after": RETRY_BUSY_SEC, [QUEUE_REASON]: code });
    case "capacity_exhausted":
      return answer(429, { "retry-after": RETRY_BUSY_SEC });
    case "unavailable":
      return answer(503, { "retry-after": RETRY_UNAVAILABLE_SEC, [QUEUE_REASON]: code });
    case "provider_unavailable":
    case "draining":
    case "node_draining":
      return answer(503, { "retry-after": RETRY_UNAVAILABLE_SEC });
    // Connecting failed: nothing ran, so a retry is right.
    case "provider_unreachable":
      return answer(502);
    case "first_byte_timeout":
    case "idle_timeout":
      return answer(504, NO_RETRY);
    case "internal":
    case "invalid_config":
      return internal(cause);
    default:
      return answer(502, NO_RETRY);
  }
}

/** A fault of ours, whose words are for the operator and not for the caller. */
export function internal(cause: unknown): HttpSurfaceError {
  return new HttpSurfaceError("internal", 500, "Internal error.", { headers: NO_RETRY, cause });
}
