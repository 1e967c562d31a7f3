/** Headers of one connection, never relayed: RFC 9110 section 7.6.1, and what older agents send. */
const HOP_BY_HOP: ReadonlySet<string> = new Set([
  "connection",
  "http2-settings",
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

const NONE: ReadonlySet<string> = new Set();

/** Whether a header does not go past this hop. `listed`: names that the message's `connection` lists. */
export function isHopByHop(lowerName: string, listed: ReadonlySet<string>): boolean {
  return HOP_BY_HOP.has(lowerName) || listed.has(lowerName);
}

/** The names that the `connection` headers of a message list, in lower case: they are hop-by-hop as well. */
export function connectionListed(headers: Iterable<readonly [string, string]>): ReadonlySet<string> {
  let listed: Set<string> | undefined;
  for (const [name, value] of headers) {
    if (name.length !== "connection".length || name.toLowerCase() !== "connection") continue;
    if (value === "keep-alive" || value === "close") continue;
    listed ??= new Set();
    for (const token of value.split(",")) listed.add(token.trim().toLowerCase());
  }
  return listed ?? NONE;
}
