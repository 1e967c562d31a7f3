/** Headers of one connection, never relayed: RFC 9110 section 7.6.1, and what older agents send. */
export const HOP_BY_HOP: ReadonlySet<string> = new Set([
  "connection",
  "http2-settings",
  "keep-alive",
  "proxy-authenticate",
  "proxy-authorization",
  "proxy-connection",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
]);

const NONE: readonly string[] = [];

/** Names that a `connection` header lists, in lower case: they are hop-by-hop as well. */
export function connectionTokens(value: string): readonly string[] {
  if (value === "keep-alive" || value === "close") return NONE;
  return value
    .toLowerCase()
    .split(",")
    .map((token) => token.trim());
}
