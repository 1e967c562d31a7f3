import { type RawResponse, jsonHeaders, rawRequest } from "./raw-http.ts";
import { MODEL, type Stack } from "./stack.ts";

/** How a request ended for its client. */
export type ChatEnd =
  /** The connection ended before there was a response. */
  { readonly kind: "no response"; readonly code: string } | ({ readonly kind: "response" } & RawResponse);

/** One streamed chat completion of `model`, on a connection of its own; `behaviour` is the provider's. Never rejects. */
export async function chat(
  stack: Pick<Stack, "http" | "apiKey">,
  behaviour: Readonly<Record<string, unknown>> = {},
  onData: (chunk: Buffer) => void = () => {},
  model: string = MODEL,
): Promise<ChatEnd> {
  try {
    const response = await rawRequest(`${stack.http}/v1/chat/completions`, {
      onData,
      headers: jsonHeaders(stack.apiKey),
      body: JSON.stringify({
        model,
        stream: true,
        messages: [{ role: "user", content: "how are you?" }],
        iop_test: behaviour,
      }),
    });
    return { kind: "response", ...response };
  } catch (error) {
    return {
      kind: "no response",
      code: error instanceof Error && "code" in error ? String(error.code) : String(error),
    };
  }
}

/**
 * That many streams at once, whose clients have all received something when this resolves; they go on at
 * `provider.release()`.
 */
export async function startStreams(
  stack: Pick<Stack, "http" | "apiKey" | "provider">,
  count: number,
): Promise<{ readonly ends: Promise<readonly string[]> }> {
  const before = stack.provider.state().hanging;
  const begun: Array<Promise<void>> = [];
  const ends = Array.from({ length: count }, async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    begun.push(promise);
    return brief(await chat(stack, { fail: "hang", at: "middle", tokens: 40 }, () => resolve()));
  });
  await Promise.race([Promise.all(begun), Promise.any(ends)]);
  await stack.provider.when(({ hanging }) => hanging === before + count, AbortSignal.timeout(5_000));
  return { ends: Promise.all(ends) };
}

/** In short: `200 whole`, `200 cut`, `503 whole`, `no response`. */
export function brief(end: ChatEnd): string {
  if (end.kind === "no response") return end.kind;
  return `${end.status} ${end.complete ? "whole" : "cut"}`;
}

/** Value of a response header; undefined where it is absent. */
export function header(end: ChatEnd, name: string): string | undefined {
  if (end.kind === "no response") return undefined;
  const at = end.rawHeaders.findIndex((text, index) => index % 2 === 0 && text.toLowerCase() === name);
  return at < 0 ? undefined : end.rawHeaders[at + 1];
}

/** Lets a provider count anew: totals from 0, the maximum from what is active now. */
export async function forget(providerUrl: string): Promise<void> {
  await fetch(`${providerUrl}/_test/reset`, { method: "POST" });
}
