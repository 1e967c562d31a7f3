import type { ByteRange } from "./byte-range.ts";

/** A top-level value of a request body, as it is spelled there. */
export interface RoutingValue extends ByteRange {
  readonly type: "string" | "number" | "boolean" | "null" | "object" | "array";
  /** Its JSON text; absent where that is longer than `maxValueBytes`. */
  readonly json: string | undefined;
}

/** What the scanner found in a whole, valid body. */
export interface RequestScan {
  /** Bytes of the body. */
  readonly byteLength: number;
  /** The top-level `model`, unescaped; the range includes the quotes. Absent where the body has none. */
  readonly model: (ByteRange & { readonly value: string }) | undefined;
  /** The top-level `stream`. Absent where the body has none or says null. */
  readonly stream: (ByteRange & { readonly value: boolean }) | undefined;
  /** Every routing key that the body has (`model`, `stream` and those asked for), by its plain spelling. */
  readonly values: ReadonlyMap<string, RoutingValue>;
}

export interface RequestScannerOptions {
  /** Top-level keys to find besides `model` and `stream`, unescaped. */
  readonly keys?: readonly string[] | undefined;
  /** Deepest nesting of objects and arrays, the body itself being 1. Default 256; model servers refuse about 1000. */
  readonly maxDepth?: number | undefined;
  /** Longest spelling of a `model` value, and of any value to be handed out as text, in bytes. Default 1024. */
  readonly maxValueBytes?: number | undefined;
}

/**
 * Reads a JSON request body as it arrives, keeping nothing of it but the routing values.
 *
 * The outcome does not depend on how the body was cut into chunks.
 */
export interface RequestScanner {
  /**
   * Reads the next chunk. The chunk is neither kept nor changed.
   * @throws ProtocolError at the first byte that is wrong: `invalid_json`, `invalid_utf8`, `not_an_object`, `too_deep`,
   *   `duplicate_key`, `wrong_type`, `value_too_large`. Later calls throw the same error.
   */
  push(chunk: Uint8Array): void;
  /**
   * The body is complete.
   * @throws ProtocolError `truncated`, or what `push` threw.
   */
  end(): RequestScan;
}
