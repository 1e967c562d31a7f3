/**
 * A request that is answered with an error, or options that contradict themselves; switch on `code`.
 * Messages never hold prompts, completions or credentials.
 *
 * - `invalid_config`: an option given to `createHttpSurface` is wrong; the message names it.
 * - `malformed_request` 400, `request_timeout` 408, `expectation_failed` 417, `headers_too_large` 431:
 *   not HTTP that can be served.
 * - `missing_host` 400, `host_not_allowed` 403, `origin_not_allowed` 403.
 * - `not_found` 404, `method_not_allowed` 405.
 * - `invalid_api_key` 401: absent or not one of ours.
 * - `unsupported_media_type` 415, `unsupported_content_encoding` 415.
 * - `body_too_large` 413: over the limit that the message names.
 * - `request_buffer_full` 429: all requests together hold too many bytes.
 * - `too_many_pipelined` 429: too many requests wait behind others of their connection.
 * - `invalid_json` 400, `duplicate_key` 400, `missing_model` 400, `invalid_model` 400.
 * - `model_not_found` 404: unknown, or not for this key.
 * - `invalid_provider_response` 502: the provider's answer cannot be relayed as HTTP.
 * - any code of the Edge or the Node: 400 `invalid_request`, `unsupported_operation`; 413 `body_too_large`;
 *   429 `queue_full`, `queue_timeout`, `capacity_exhausted`; 503 `unavailable`, `provider_unavailable`,
 *   `draining`, `node_draining`; 504 `first_byte_timeout`, `idle_timeout`; 500 `internal`; 502 for all others.
 */
export class HttpSurfaceError extends Error {
  override readonly name = "HttpSurfaceError";
  readonly code: string;
  /** HTTP status; 500 where none applies. */
  readonly status: number;
  /** Name of the request's field at fault. */
  readonly param: string | undefined;
  /** Further response headers, in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  /** The connection cannot be used for another request. */
  readonly closesConnection: boolean;

  constructor(code: string, status: number, message: string, details: HttpSurfaceErrorDetails = {}) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.code = code;
    this.status = status;
    this.param = details.param;
    this.headers = details.headers ?? NO_HEADERS;
    this.closesConnection = details.closesConnection ?? false;
  }
}

export interface HttpSurfaceErrorDetails {
  readonly param?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly closesConnection?: boolean;
  readonly cause?: unknown;
}

const NO_HEADERS: Readonly<Record<string, string>> = {};

/** The same answer whether the model does not exist or the key may not use it: a key cannot probe for names. */
export function modelNotFound(model: string): HttpSurfaceError {
  return new HttpSurfaceError(
    "model_not_found",
    404,
    `The model \`${model.slice(0, 256)}\` does not exist or you do not have access to it.`,
    { param: "model" },
  );
}
