/**
 * - `invalid_config`: the provider's configuration is wrong; the message names the key.
 * - `unknown_adapter`, `unknown_provider`: no such kind, no such instance.
 * - `duplicate_provider`: an instance of that name is registered.
 * - `capacity_exhausted`: the provider's gate is full; nothing ran.
 * - `provider_unreachable`: connecting failed; nothing ran.
 * - `provider_unavailable`: the provider exists but may not be used (its configuration is refused, or its server is down).
 * - `unsupported_operation`: the provider does not offer it.
 * - `invalid_request`: the request cannot be sent (a header with a line break, a path that is not listed).
 * - `body_too_large`: over the limit that the message names.
 * - `first_byte_timeout`, `idle_timeout`: the provider was silent for too long.
 * - `provider_stream_cut`: the provider's answer ended before its end.
 * - `provider_error`: any other failure of the exchange with the provider.
 * - `cancelled`: stopped because the caller asked for it.
 * - `internal`: a fault of ours.
 */
export type RuntimeErrorCode =
  | "invalid_config"
  | "unknown_adapter"
  | "unknown_provider"
  | "duplicate_provider"
  | "capacity_exhausted"
  | "provider_unreachable"
  | "provider_unavailable"
  | "unsupported_operation"
  | "invalid_request"
  | "body_too_large"
  | "first_byte_timeout"
  | "idle_timeout"
  | "provider_stream_cut"
  | "provider_error"
  | "cancelled"
  | "internal";

/** The one error class of the runtime; switch on `code`. Messages never hold prompts, completions or credentials. */
export class RuntimeError extends Error {
  override readonly name = "RuntimeError";
  readonly code: RuntimeErrorCode;

  constructor(code: RuntimeErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }

  /** True for a RuntimeError of any copy of this package. */
  static is(error: unknown): error is RuntimeError {
    return (
      error instanceof Error &&
      error.name === "RuntimeError" &&
      "code" in error &&
      typeof error.code === "string"
    );
  }

  /** `error` itself where it is one, else wrapped as `code`; an abort becomes `cancelled`. */
  static from(error: unknown, code: RuntimeErrorCode = "internal"): RuntimeError {
    if (RuntimeError.is(error)) return error;
    if (error instanceof Error && error.name === "AbortError")
      return new RuntimeError("cancelled", "cancelled", { cause: error });
    return new RuntimeError(code, error instanceof Error ? error.message : String(error), { cause: error });
  }
}
