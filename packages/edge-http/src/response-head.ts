import type { HeaderList } from "@iop/edge-core";
import { connectionListed, isHopByHop } from "@iop/provider-protocols";
import { HttpSurfaceError } from "./http-surface-error.ts";

/** The head of a relayed response. */
export interface ResponseHead {
  readonly status: number;
  /** Name, value, name, value, …: the form of `writeHead` that keeps order and repeats. */
  readonly headers: string[];
  /** Bytes that the provider announced; undefined where it did not. */
  readonly contentLength: number | undefined;
  /** False for 204 and 304, which have no body whatever arrives. */
  readonly hasBody: boolean;
}

/**
 * The provider's status and end-to-end headers as it sent them, and what this surface adds:
 * its `own` headers (name, value, …), and `x-accel-buffering: no` on a streamed body, without which nginx holds it back.
 * @throws HttpSurfaceError `invalid_provider_response`
 */
export function responseHead(status: number, source: HeaderList, own: readonly string[]): ResponseHead {
  if (!Number.isInteger(status) || status < 200 || status > 999)
    throw invalidResponse(`status ${status} cannot end an exchange`);
  const hasBody = status !== 204 && status !== 304;
  const listed = connectionListed(source);
  const headers: string[] = [];
  let contentLength: number | undefined;
  let unbuffered = false;
  for (const [name, value] of source) {
    const lower = name.toLowerCase();
    if (isHopByHop(lower, listed) || lower.startsWith("x-iop-")) continue;
    if (lower === "content-length") {
      const length = parseLength(value);
      if (contentLength !== undefined && contentLength !== length)
        throw invalidResponse("two different content-length headers");
      // RFC 9110 section 8.6: none on a 204.
      if (contentLength !== undefined || status === 204) continue;
      contentLength = length;
    } else if (lower === "x-accel-buffering") unbuffered = true;
    headers.push(name, value);
  }
  if (contentLength === undefined && hasBody && !unbuffered) headers.push("x-accel-buffering", "no");
  headers.push(...own);
  return { status, headers, contentLength, hasBody };
}

export function invalidResponse(what: string, cause?: unknown): HttpSurfaceError {
  return new HttpSurfaceError(
    "invalid_provider_response",
    502,
    `The provider's response cannot be relayed: ${what}.`,
    { headers: { "x-should-retry": "false" }, cause },
  );
}

function parseLength(value: string): number {
  const length = /^\d{1,15}$/.test(value) ? Number(value) : Number.NaN;
  if (Number.isNaN(length)) throw invalidResponse("content-length is not a number");
  return length;
}
