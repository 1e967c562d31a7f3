import type { HeaderList } from "@iop/agent-runtime";
import { connectionListed, isHopByHop } from "@iop/provider-protocols";
import type { Dispatcher } from "undici";

/** What comes before a response's body. */
export interface ResponseHead {
  readonly status: number;
  /** End-to-end headers as the provider sent them: order, case, repeats. A character is a byte (ISO 8859-1). */
  readonly headers: HeaderList;
  /** In lower case; undefined where absent. */
  readonly contentType: string | undefined;
  /** Whether the body is under a `content-encoding`. */
  readonly encoded: boolean;
  /** Whether only the connection's end ends the body, so that a cut is hard to tell from an end. */
  readonly closeDelimited: boolean;
}

/** Reads the head from what the HTTP client has received. */
export function toResponseHead(
  status: number,
  raw: Dispatcher.DispatchController["rawHeaders"],
): ResponseHead {
  const all = toPairs(raw);
  const listed = connectionListed(all);
  const headers: (readonly [string, string])[] = [];
  let contentType: string | undefined;
  let encoded = false;
  let closeDelimited = true;
  for (const pair of all) {
    const lowerName = pair[0].toLowerCase();
    if (lowerName === "content-type") contentType ??= pair[1].toLowerCase();
    else if (lowerName === "content-encoding") encoded ||= pair[1].toLowerCase() !== "identity";
    else if (lowerName === "content-length" || lowerName === "transfer-encoding") closeDelimited = false;
    if (!isHopByHop(lowerName, listed)) headers.push(pair);
  }
  return { status, headers, contentType, encoded, closeDelimited };
}

function toPairs(raw: Dispatcher.DispatchController["rawHeaders"]): (readonly [string, string])[] {
  const pairs: (readonly [string, string])[] = [];
  if (!Array.isArray(raw)) return pairs;
  for (let i = 0; i + 1 < raw.length; i += 2) pairs.push([text(raw[i]), text(raw[i + 1])]);
  return pairs;
}

function text(part: Buffer | string | undefined): string {
  return typeof part === "string" ? part : (part?.toString("latin1") ?? "");
}
