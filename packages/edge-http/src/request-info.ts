import type { RunDispatch, Usage } from "@iop/edge-core";

/**
 * How a request ended.
 *
 * - `completed`: the whole answer was handed to the client's connection, whatever its status.
 * - `refused`: answered with an error of ours; `code` says which.
 * - `cut`: the provider's answer broke off after its start, and so did the client's; `code` says why.
 * - `client_closed`: the client left first.
 * - `slow_consumer`: the client stopped reading and was cut off.
 */
export type RequestOutcome = "completed" | "refused" | "cut" | "client_closed" | "slow_consumer";

/** One line of an access log. Holds no content and no credential. */
export interface RequestInfo {
  /** As in the `x-iop-request-id` header. */
  readonly requestId: string;
  readonly method: string;
  /** The operation that the path names; undefined where there is none. */
  readonly operation: string | undefined;
  /** Name of the API key. */
  readonly key: string | undefined;
  /** As the caller named it, at most 256 characters. */
  readonly model: string | undefined;
  /** Of the response; 0 where none was begun. */
  readonly status: number;
  /** From the request's head to the last byte of the response. */
  readonly durationMs: number;
  readonly outcome: RequestOutcome;
  /**
   * For `refused` that of the error, for `cut` that of the Edge or the Node, or `content_length_exceeded` or
   * `content_length_not_reached` where the provider did not keep to what it announced.
   */
  readonly code: string | undefined;
  /** How long it waited for a provider, in milliseconds; undefined where it was refused without. */
  readonly queuedMs: number | undefined;
  /** Who served it. */
  readonly dispatch: RunDispatch | undefined;
  /** As the provider reported it. */
  readonly usage: Usage | undefined;
}
