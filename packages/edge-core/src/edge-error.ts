/**
 * - `unknown_model`: no such key in the catalog.
 * - `unsupported_operation`: no candidate's profile offers it.
 * - `unavailable`: the model exists, none of its candidates is live.
 * - `queue_full`: no candidate has room, and as many requests wait as may.
 * - `queue_timeout`: no candidate had room in time.
 * - `draining`: the Edge is shutting down; retry elsewhere or later.
 * - `cancelled`: withdrawn by the caller.
 * - `invalid_request`: it cannot be sent: a header that HTTP cannot carry, or too many of them.
 * - `body_too_large`: the body is over the limit that the message names.
 * - `invalid_config`: what was given to `createEdge` or `reload` contradicts itself; the message names the key.
 * - `internal`: a fault of ours.
 */
export type EdgeErrorCode =
  | "unknown_model"
  | "unsupported_operation"
  | "unavailable"
  | "queue_full"
  | "queue_timeout"
  | "draining"
  | "cancelled"
  | "invalid_request"
  | "body_too_large"
  | "invalid_config"
  | "internal";

/** How a request waited for a provider. */
export interface QueueWait {
  /** Its place in the line when it began to wait, from 1; 0 where it did not wait. */
  readonly position: number;
  /** Until a provider was found or the wait was given up, in milliseconds; over all attempts. */
  readonly waitedMs: number;
}

/** The one error class of the Edge; switch on `code`. Messages never hold prompts, completions or credentials. */
export class EdgeError extends Error {
  override readonly name = "EdgeError";
  readonly code: EdgeErrorCode;
  /** Of a request that waited. */
  readonly queue: QueueWait | undefined;

  constructor(
    code: EdgeErrorCode,
    message: string,
    options: ErrorOptions & { readonly queue?: QueueWait } = {},
  ) {
    super(message, options);
    this.code = code;
    this.queue = options.queue;
  }

  /** True for an EdgeError of any copy of this package. */
  static is(error: unknown): error is EdgeError {
    return (
      error instanceof Error &&
      error.name === "EdgeError" &&
      "code" in error &&
      typeof error.code === "string"
    );
  }
}
