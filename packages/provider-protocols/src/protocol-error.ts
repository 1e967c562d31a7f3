/**
 * - `invalid_json`: the body is not JSON (RFC 8259).
 * - `invalid_utf8`: a string of the body is not UTF-8.
 * - `truncated`: the body ended before its JSON did, or is empty.
 * - `not_an_object`: the body is JSON but no object.
 * - `too_deep`: arrays and objects are nested deeper than the bound.
 * - `duplicate_key`: a routing key is there twice, or beside a spelling that differs only in letter case.
 * - `wrong_type`: a routing value has not the type that routing needs.
 * - `value_too_large`: a routing value is longer than the bound.
 * - `invalid_range`: a byte range lies outside the body (a fault of the caller).
 */
export type ProtocolErrorCode =
  | "invalid_json"
  | "invalid_utf8"
  | "truncated"
  | "not_an_object"
  | "too_deep"
  | "duplicate_key"
  | "wrong_type"
  | "value_too_large"
  | "invalid_range";

/** Where in a body something is wrong. */
export interface BodyPosition {
  /** Bytes before it. */
  readonly offset: number;
  /** From 1; lines end with LF. */
  readonly line: number;
  /** From 1, in bytes. */
  readonly column: number;
}

export interface ProtocolErrorOptions extends ErrorOptions {
  readonly position?: BodyPosition | undefined;
  /** The routing key that it is about. */
  readonly key?: string | undefined;
}

/** The one error class of the package; switch on `code`. Messages name a routing key and a position, never content. */
export class ProtocolError extends Error {
  override readonly name = "ProtocolError";
  readonly code: ProtocolErrorCode;
  /** Absent where the error is not about a place in a body. */
  readonly position: BodyPosition | undefined;
  /** The routing key that it is about, in the caller's spelling. */
  readonly key: string | undefined;

  constructor(code: ProtocolErrorCode, message: string, options?: ProtocolErrorOptions) {
    super(message, options);
    this.code = code;
    this.position = options?.position;
    this.key = options?.key;
  }

  /** True for a ProtocolError of any copy of this package. */
  static is(error: unknown): error is ProtocolError {
    return (
      error instanceof Error &&
      error.name === "ProtocolError" &&
      "code" in error &&
      typeof error.code === "string"
    );
  }
}
