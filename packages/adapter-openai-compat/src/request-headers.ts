import { RuntimeError, type HeaderList } from "@iop/agent-runtime";
import { connectionListed, isHopByHop } from "@iop/provider-protocols";
import type { Credential } from "./credential.ts";
import { isHeaderName, isHeaderValue } from "./header-syntax.ts";

/** End to end, but ours to say or not the provider's to see. */
const WITHHELD: ReadonlySet<string> = new Set([
  // Set by the HTTP client from the URL and the body.
  "host",
  "content-length",
  // Answered by the Edge; the body is complete here.
  "expect",
  // The caller's, for the Edge.
  "authorization",
  "x-api-key",
  "api-key",
  "cookie",
]);

/**
 * What is sent to the provider: the caller's end-to-end headers in their order, repeats kept, without its
 * credentials, then ours. Name and value alternate, as the HTTP client takes them. Adds no header of its own
 * invention, so that the provider answers what this caller can read.
 * @throws RuntimeError `invalid_request` for a name or value that HTTP cannot carry.
 */
export function toProviderHeaders(given: HeaderList, credential: Credential | undefined): string[] {
  const listed = connectionListed(given);
  const headers: string[] = [];
  for (const [name, value] of given) {
    if (!isHeaderName(name))
      throw new RuntimeError("invalid_request", "a header's name is not an HTTP token");
    if (!isHeaderValue(value))
      throw new RuntimeError("invalid_request", `header ${name}: its value holds what HTTP cannot carry`);
    const lowerName = name.toLowerCase();
    if (isHopByHop(lowerName, listed) || WITHHELD.has(lowerName) || lowerName === credential?.header)
      continue;
    headers.push(name, value);
  }
  if (credential !== undefined) headers.push(credential.header, credential.value);
  return headers;
}
