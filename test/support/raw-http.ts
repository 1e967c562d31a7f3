import { request, type IncomingMessage } from "node:http";

/** A response as it came: raw headers, undecoded bytes. */
export interface RawResponse {
  readonly status: number;
  readonly rawHeaders: readonly string[];
  readonly body: Buffer;
  /** False where the connection was cut before the body's end. */
  readonly complete: boolean;
}

/** One request on a connection of its own. */
export async function rawRequest(
  url: string,
  options: {
    readonly method?: string;
    readonly headers?: Readonly<Record<string, string>>;
    readonly body?: string | Uint8Array;
    /** Told each piece of the body as it comes. */
    readonly onData?: (chunk: Buffer) => void;
  } = {},
): Promise<RawResponse> {
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    const outgoing = request(url, {
      method: options.method ?? "POST",
      headers: options.headers ?? {},
      agent: false,
    });
    outgoing.on("response", resolve);
    outgoing.on("error", reject);
    outgoing.end(options.body);
  });
  const chunks: Buffer[] = [];
  const { promise, resolve } = Promise.withResolvers<void>();
  response.on("data", (chunk: Buffer) => {
    chunks.push(chunk);
    options.onData?.(chunk);
  });
  response.on("error", () => {});
  response.on("close", resolve);
  await promise;
  return {
    status: response.statusCode ?? 0,
    rawHeaders: response.rawHeaders,
    body: Buffer.concat(chunks),
    complete: response.complete,
  };
}

/** Headers of a JSON request with a caller's key. */
export function jsonHeaders(apiKey: string): Record<string, string> {
  return { authorization: `Bearer ${apiKey}`, "content-type": "application/json" };
}
