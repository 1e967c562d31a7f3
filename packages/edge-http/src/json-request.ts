import type { IncomingMessage } from "node:http";
import type { BufferedBytes, BufferedShare } from "./buffered-bytes.ts";
import type { Exchange } from "./exchange.ts";
import { HttpSurfaceError } from "./http-surface-error.ts";
import type { JsonBody } from "./json-body.ts";

const JSON_MEDIA_TYPE = /^application\/json[ \t]*(?:;|$)/i;
const CONTENT_TYPE = "content-type";
const CHARSET = /;[ \t]*charset[ \t]*=[ \t]*"?([^";\s]*)/gi;

/** Limits on request bodies, in bytes. */
export interface BodyLimits {
  readonly bodyBytes: number;
  readonly buffered: BufferedBytes;
}

/**
 * Judges a request with a body by its head, so that it can be refused before the body is sent.
 * @throws HttpSurfaceError `unsupported_media_type`, `unsupported_content_encoding`, `body_too_large`,
 *   `request_buffer_full`
 */
export function checkJsonHead(req: IncomingMessage, limits: BodyLimits): void {
  const contentType = req.headers["content-type"] ?? "";
  // A second one, which Node leaves out of `headers`, could be what the provider reads.
  if (!JSON_MEDIA_TYPE.test(contentType) || countOf(req.rawHeaders, CONTENT_TYPE) > 1)
    throw unsupportedMedia("The request's content-type must be application/json.");
  // Routing reads UTF-8 (RFC 8259 section 8.1), and so must whoever reads after it.
  for (const [, charset = ""] of contentType.matchAll(CHARSET))
    if (charset.toLowerCase() !== "utf-8") throw unsupportedMedia("The request body must be in UTF-8.");
  const encoding = req.headers["content-encoding"] ?? "identity";
  if (encoding.trim().toLowerCase() !== "identity")
    throw new HttpSurfaceError(
      "unsupported_content_encoding",
      415,
      `The content-encoding ${encoding.slice(0, 64)} is not supported for request bodies; send the body uncompressed.`,
      { headers: { "accept-encoding": "identity" } },
    );
  const announced = Number(req.headers["content-length"] ?? 0);
  if (announced > limits.bodyBytes) throw tooLarge(limits);
  if (!limits.buffered.fits(announced)) throw bufferFull(limits);
}

/**
 * Reads the body as it comes; resolves with its model, undefined where the client left before its end.
 * @throws HttpSurfaceError `body_too_large`, `request_buffer_full`, and those of the body
 */
export function readJsonBody(
  exchange: Exchange,
  body: JsonBody,
  share: BufferedShare,
  limits: BodyLimits,
): Promise<string | undefined> {
  const { req } = exchange;
  if (exchange.over) return Promise.resolve(undefined);
  if (req.readableEnded)
    throw new HttpSurfaceError("internal", 500, "The request body was read before it came to this surface.");
  return new Promise((resolve, reject) => {
    const stop = (): void => {
      req.off("data", onData);
      req.off("end", onEnd);
      exchange.onOver = undefined;
    };
    const onData = (chunk: Buffer): void => {
      exchange.receivedBytes += chunk.byteLength;
      try {
        if (exchange.receivedBytes > limits.bodyBytes) throw tooLarge(limits);
        if (!share.take(chunk.byteLength)) throw bufferFull(limits);
        body.push(chunk);
      } catch (error) {
        stop();
        reject(error);
      }
    };
    const onEnd = (): void => {
      stop();
      try {
        resolve(body.end());
      } catch (error) {
        reject(error);
      }
    };
    exchange.onOver = () => {
      stop();
      resolve(undefined);
    };
    req.on("data", onData);
    req.on("end", onEnd);
    exchange.continue();
  });
}

function countOf(rawHeaders: readonly string[], lowerName: string): number {
  let count = 0;
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const name = rawHeaders[i];
    if (name?.length === lowerName.length && name.toLowerCase() === lowerName) count += 1;
  }
  return count;
}

function unsupportedMedia(message: string): HttpSurfaceError {
  return new HttpSurfaceError("unsupported_media_type", 415, message);
}

function tooLarge({ bodyBytes }: BodyLimits): HttpSurfaceError {
  return new HttpSurfaceError(
    "body_too_large",
    413,
    `The request body is larger than body_bytes, which is ${bodyBytes} bytes.`,
  );
}

function bufferFull({ buffered }: BodyLimits): HttpSurfaceError {
  return new HttpSurfaceError(
    "request_buffer_full",
    429,
    `The bodies of all requests together would exceed buffered_request_bytes, which is ${buffered.limit} bytes; try again later.`,
    { headers: { "retry-after": "1" } },
  );
}
