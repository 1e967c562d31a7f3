import { createHash } from "node:crypto";
import { z } from "zod";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";

import { jsonHeaders, rawRequest } from "../support/raw-http.ts";
import { MODEL, type Stack, startStack } from "../support/stack.ts";

let stack: Stack;
beforeAll(async () => {
  stack = await startStack({ proxied: true });
});
afterEach(() => stack.idle());
afterAll(() => stack[Symbol.asyncDispose]());

const messages = [{ role: "user", content: "Ünïcode, “quotes” and 漢字." }];

/** The same request through the fabric and straight to the provider. */
async function both(body: Readonly<Record<string, unknown>>, headers: Readonly<Record<string, string>> = {}) {
  const through = await rawRequest(`${stack.http}/v1/chat/completions`, {
    headers: { ...jsonHeaders(stack.apiKey), ...headers },
    body: JSON.stringify({ model: MODEL, ...body }),
  });
  const straight = await rawRequest(`${stack.providerUrl}/v1/chat/completions`, {
    headers: { ...jsonHeaders("none"), ...headers },
    body: JSON.stringify({ model: "iop-demo", ...body }),
  });
  return { through, straight };
}

/** The headers of those names, in order. */
function named(raw: readonly string[], wanted: readonly string[]): string[] {
  return raw.flatMap((value, index) =>
    index % 2 === 0 && wanted.includes(value.toLowerCase())
      ? [`${value.toLowerCase()}: ${raw[index + 1]}`]
      : [],
  );
}

const echoSchema = z.object({ headers: z.array(z.tuple([z.string(), z.string()])), body_sha256: z.string() });

describe("response bytes", () => {
  const shapes: ReadonlyArray<readonly [string, Readonly<Record<string, unknown>>]> = [
    ["SSE", { stream: true, iop_test: { tokens: 200 } }],
    ["SSE, cut at random", { stream: true, iop_test: { tokens: 200, split: "random", seed: 7 } }],
    ["SSE, byte by byte", { stream: true, iop_test: { tokens: 20, split: "bytes" } }],
    ["SSE, gzip", { stream: true, iop_test: { tokens: 200, gzip: true } }],
    [
      "SSE, gzip, cut at random",
      { stream: true, iop_test: { tokens: 200, gzip: true, split: "random", seed: 11 } },
    ],
    ["SSE without [DONE]", { stream: true, iop_test: { tokens: 20, done: false } }],
    ["JSON", { iop_test: { tokens: 200 } }],
    ["JSON, gzip", { iop_test: { tokens: 200, gzip: true } }],
    ["JSON, cut at random", { iop_test: { tokens: 200, split: "random", seed: 3 } }],
    ["JSON of 8 MiB", { iop_test: { body_bytes: 8 * 1024 * 1024 } }],
    ["SSE of 20,000 chunks", { stream: true, iop_test: { chunks: 20_000, chunk_bytes: 200 } }],
    ["SSE with a line of 2 MiB", { stream: true, iop_test: { chunks: 3, chunk_bytes: 2 * 1024 * 1024 } }],
    ["an error body", { iop_test: { status: 422, error_message: "no" } }],
  ];
  test.each(shapes)("%s", async (_, body) => {
    const { through, straight } = await both({ messages, ...body });
    expect(through.status).toBe(straight.status);
    expect(through.complete).toBe(true);
    expect(through.body.equals(straight.body)).toBe(true);
  });

  test.each([1, 2, 3])("the link cuts frames into pieces of up to 7 bytes (seed %i)", async (seed) => {
    stack.link?.slice(7);
    try {
      const { through, straight } = await both({
        messages,
        stream: true,
        iop_test: { tokens: 50, split: "random", seed, gzip: seed === 2 },
      });
      expect(through.body.equals(straight.body)).toBe(true);
    } finally {
      stack.link?.slice(undefined);
    }
  });
});

describe("headers", () => {
  test("end-to-end response headers arrive in order, repeats kept, hop-by-hop dropped", async () => {
    const headers = [
      ["set-cookie", "a=1"],
      ["x-ratelimit-remaining-requests", "7"],
      ["Set-Cookie", "b=2"],
      ["keep-alive", "timeout=9"],
      ["x-request-id", "req_1"],
    ];
    const { through, straight } = await both({ messages, iop_test: { headers } });
    const endToEnd = [
      "set-cookie",
      "x-ratelimit-remaining-requests",
      "x-request-id",
      "content-type",
      "content-length",
    ];
    expect(named(through.rawHeaders, endToEnd)).toEqual(named(straight.rawHeaders, endToEnd));
    expect(named(through.rawHeaders, ["set-cookie"])).toEqual(["set-cookie: a=1", "set-cookie: b=2"]);
    expect(named(through.rawHeaders, ["keep-alive"])).not.toContain("keep-alive: timeout=9");
  });

  test("a stream asks proxies on the way not to hold it back", async () => {
    const { through } = await both({ messages, stream: true });
    expect(named(through.rawHeaders, ["x-accel-buffering"])).toEqual(["x-accel-buffering: no"]);
  });

  test("the provider gets the caller's end-to-end headers and body, not the caller's credentials", async () => {
    const body = `{ "temperature": 1.50e0, "model" : "${MODEL}", "messages": [{"role":"user","content":"\\u00e9\\/"}], "x": 12345678901234567890, "iop_test": {"echo": true} }`;
    const response = await rawRequest(`${stack.http}/v1/chat/completions`, {
      headers: {
        ...jsonHeaders(stack.apiKey),
        cookie: "session=1",
        "x-api-key": "secret",
        "openai-beta": "assistants=v2",
        connection: "close, x-private",
        "x-private": "1",
        "x-trace": "abc",
      },
      body,
    });
    const echo = echoSchema.parse(JSON.parse(response.body.toString()));
    const sent = body.replace(`"${MODEL}"`, '"iop-demo"');
    expect(echo.body_sha256).toBe(createHash("sha256").update(sent).digest("hex"));
    const seen = new Map(echo.headers.map(([key, value]) => [key.toLowerCase(), value]));
    expect(seen.get("openai-beta")).toBe("assistants=v2");
    expect(seen.get("x-trace")).toBe("abc");
    for (const dropped of ["authorization", "cookie", "x-api-key", "x-private"])
      expect(seen.has(dropped)).toBe(false);
    expect(JSON.stringify(echo)).not.toContain(stack.apiKey);
  });
});
