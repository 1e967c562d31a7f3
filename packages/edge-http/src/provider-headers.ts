import type { IncomingMessage } from "node:http";
import type { HeaderList } from "@iop/edge-core";
import { connectionListed, isHopByHop } from "@iop/provider-protocols";

/**
 * What the provider must not see. `content-length` changes with the model's name; `origin` and
 * `referer` speak of the caller's page, which this surface has judged already (a provider such as
 * Ollama would refuse an origin that it does not know).
 */
const WITHHELD: ReadonlySet<string> = new Set([
  "api-key",
  "authorization",
  "content-length",
  "cookie",
  "expect",
  "forwarded",
  "host",
  "origin",
  "referer",
  "via",
  "x-api-key",
  "x-real-ip",
]);
const WITHHELD_PREFIX = /^(?:proxy-|sec-fetch-|x-forwarded-|x-iop-)/;

/** The caller's end-to-end headers for the provider: in order, repeats kept, names as they were sent. */
export function providerHeaders(req: IncomingMessage): HeaderList {
  const { rawHeaders } = req;
  const listed = connectionListed([["connection", req.headers.connection ?? "close"]]);
  const headers: Array<readonly [string, string]> = [];
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    const name = rawHeaders[i] ?? "";
    const lower = name.toLowerCase();
    if (isHopByHop(lower, listed) || WITHHELD.has(lower) || WITHHELD_PREFIX.test(lower)) continue;
    headers.push([name, rawHeaders[i + 1] ?? ""]);
  }
  return headers;
}
