import { NodeError } from "./node-error.ts";

/** `http://HOST`, `http://HOST:PORT` or `http://HOST:*`; the same with https. A HOST of `*` is any. */
const PATTERN = /^(https?):\/\/(\[[0-9A-Fa-f:.]+\]|[^\s/:@?#[\]]+)(?::(\d{1,5}|\*))?\/?$/;
const DEFAULT_PORTS: Readonly<Record<string, string>> = { "http:": "80", "https:": "443" };

interface EndpointPattern {
  readonly protocol: string;
  /** As the URL parser writes it; undefined: any. */
  readonly hostname: string | undefined;
  /** Undefined: any. */
  readonly port: string | undefined;
}

/** Which endpoints a configuration that the Edge sends may name: the Node's owner says, not the Edge. */
export class EndpointAllowList {
  readonly #patterns: readonly EndpointPattern[];

  /** @throws NodeError `invalid_options` that names a pattern. */
  constructor(patterns: readonly string[]) {
    this.#patterns = patterns.map(parsePattern);
  }

  /** Whether `endpoint` is an http(s) URL, without user or password, of a listed origin. */
  allows(endpoint: string): boolean {
    const url = parseUrl(endpoint);
    if (url === undefined || url.username !== "" || url.password !== "") return false;
    const port = portOf(url);
    return this.#patterns.some(
      (pattern) =>
        pattern.protocol === url.protocol &&
        (pattern.hostname === undefined || pattern.hostname === url.hostname) &&
        (pattern.port === undefined || pattern.port === port),
    );
  }
}

function parsePattern(pattern: string): EndpointPattern {
  const [, scheme, host, port] = PATTERN.exec(pattern) ?? [];
  const any = host === "*";
  const url = any
    ? parseUrl(`${scheme}://any:${port === "*" ? "" : (port ?? "")}`)
    : parseUrl(`${scheme}://${host}:${port === "*" ? "" : (port ?? "")}`);
  if (scheme === undefined || url === undefined) {
    throw new NodeError(
      "invalid_options",
      `allow.endpoints: ${pattern} is not http(s)://HOST, http(s)://HOST:PORT or http(s)://HOST:*`,
    );
  }
  return {
    protocol: url.protocol,
    hostname: any ? undefined : url.hostname,
    port: port === "*" ? undefined : portOf(url),
  };
}

function parseUrl(text: string): URL | undefined {
  const url = URL.parse(text);
  return url !== null && url.protocol in DEFAULT_PORTS ? url : undefined;
}

function portOf(url: URL): string {
  return url.port === "" ? (DEFAULT_PORTS[url.protocol] ?? "") : url.port;
}
