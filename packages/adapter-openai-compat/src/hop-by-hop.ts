/** Headers that mean one connection only (RFC 9110, 7.6.1, and older practice). */
const HOP_BY_HOP: ReadonlySet<string> = new Set([
  "connection",
  "keep-alive",
  "proxy-authenticate",
  "proxy-authentication-info",
  "proxy-authorization",
  "proxy-connection",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
]);

/** Whether a header does not go past this hop. `listed`: names that the message's `connection` lists. */
export function isHopByHop(lowerName: string, listed: ReadonlySet<string>): boolean {
  return HOP_BY_HOP.has(lowerName) || listed.has(lowerName);
}

/** The names that `connection` headers of a message list, in lower case. */
export function connectionListed(headers: Iterable<readonly [string, string]>): ReadonlySet<string> {
  let listed: Set<string> | undefined;
  for (const [name, value] of headers) {
    if (name.length !== "connection".length || name.toLowerCase() !== "connection") continue;
    listed ??= new Set();
    for (const token of value.split(",")) listed.add(token.trim().toLowerCase());
  }
  return listed ?? NONE;
}

const NONE: ReadonlySet<string> = new Set();
