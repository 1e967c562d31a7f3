import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { errorOf, serve } from "./testing/served.ts";

const BODY = '{"model":"m"}';

/** Bytes cut at random places. */
const chunked = fc
  .tuple(fc.uint8Array({ minLength: 1, maxLength: 300 }), fc.infiniteStream(fc.integer({ min: 1, max: 40 })))
  .map(([bytes, sizes]) => {
    const chunks: Uint8Array[] = [];
    let at = 0;
    for (const size of sizes) {
      if (at >= bytes.length) break;
      chunks.push(bytes.slice(at, at + size));
      at += size;
    }
    return { bytes, chunks };
  });

describe("what the provider gets", () => {
  it("is the body with only the model's value replaced, however it was cut", async () => {
    const { edge, raw } = await serve();
    const client = raw();
    let count = 0;
    await fc.assert(
      fc.asyncProperty(
        fc.json(),
        fc.constantFrom(" ", "\n", "\t", ""),
        fc.array(fc.integer({ min: 1, max: 30 }), { minLength: 1, maxLength: 20 }),
        async (value, space, sizes) => {
          const before = `{${space}"x"${space}:${space}${value},"n":1.00e+2,"model"${space}:`;
          const after = `${space},"ü":"\\u00fc"${space}}`;
          const bytes = Buffer.from(`${before}"\\u006d"${after}`);
          const submitted = edge.next();
          client.send(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n" +
              "transfer-encoding: chunked\r\n\r\n",
          );
          for (let at = 0, i = 0; at < bytes.length; i += 1) {
            const part = bytes.subarray(at, at + (sizes[i % sizes.length] ?? 1));
            client.send(
              Buffer.concat([Buffer.from(`${part.length.toString(16)}\r\n`), part, Buffer.from("\r\n")]),
            );
            at += part.length;
          }
          client.send("0\r\n\r\n");
          const { submission, body, tunnel } = await submitted;
          expect(submission.model).toBe("m");
          expect(body.toString()).toBe(`${before}"served"${after}`);
          tunnel.start([["content-length", "0"]]);
          tunnel.end();
          count += 1;
          await client.until("HTTP/1.1 200 OK", count);
        },
      ),
      { numRuns: 100 },
    );
  });

  it("is let go of once it is submitted", async () => {
    const { ask, edge } = await serve();
    const submitted = edge.next();
    const answer = ask({ body: BODY });
    const { submission, tunnel } = await submitted;
    tunnel.start();
    tunnel.end();
    await answer;
    expect(() => submission.buildBody("again")).toThrow("not complete");
  });

  it("has the caller's end-to-end headers in order, and none that is not the provider's business", async () => {
    const { edge, raw } = await serve({
      access: { apiKeys: [], allowedOrigins: ["https://a.example"] },
    });
    const submitted = edge.next();
    const client = raw();
    client.post(BODY, [
      "X-Trace: 1",
      "Accept: text/event-stream",
      "X-trace: 2",
      "Connection: keep-alive, X-Hop",
      "x-hop: secret",
      "Keep-Alive: timeout=5",
      "TE: trailers",
      "Proxy-Authorization: Basic x",
      "Proxy-Whatever: x",
      "Authorization: Bearer k",
      "X-API-Key: k",
      "Api-Key: k",
      "Cookie: a=b",
      "Forwarded: for=1.2.3.4",
      "X-Forwarded-For: 1.2.3.4",
      "X-Real-IP: 1.2.3.4",
      "Via: 1.1 x",
      "Origin: https://a.example",
      "Referer: https://a.example/page",
      "Sec-Fetch-Mode: cors",
      "X-IOP-Request-Id: forged",
      "Upgrade: h2c",
      "HTTP2-Settings: AAMAAABkAAQAAP__",
      "Accept-Encoding: gzip",
      "OpenAI-Organization: org",
      "X-Latin: caf\u00e9",
    ]);
    const { submission, tunnel } = await submitted;
    expect(submission).toMatchObject({ operation: "chat_completions", method: "POST", model: "m" });
    expect(submission.headers).toEqual([
      ["content-type", "application/json"],
      ["X-Trace", "1"],
      ["Accept", "text/event-stream"],
      ["X-trace", "2"],
      ["Accept-Encoding", "gzip"],
      ["OpenAI-Organization", "org"],
      ["X-Latin", Buffer.from("caf\u00e9").toString("latin1")],
    ]);
    tunnel.start();
    tunnel.end();
    await client.until("0\r\n\r\n");
  });
});

describe("what the client gets", () => {
  it("is the provider's bytes, however they were cut, and as many as it announced or no announcement", async () => {
    const { ask, edge } = await serve();
    await fc.assert(
      fc.asyncProperty(chunked, fc.boolean(), async ({ bytes, chunks }, announced) => {
        const submitted = edge.next();
        const answering = ask({ body: BODY });
        const { tunnel } = await submitted;
        tunnel.start(announced ? [["Content-Length", String(bytes.length)]] : []);
        for (const chunk of chunks) tunnel.body(chunk);
        tunnel.end();
        const answer = await answering;
        expect(answer.body.equals(bytes)).toBe(true);
        expect(answer.headers["content-length"]).toBe(announced ? String(bytes.length) : undefined);
        expect(answer.headers["transfer-encoding"]).toBe(announced ? undefined : "chunked");
        expect(answer.headers["x-accel-buffering"]).toBe(announced ? undefined : "no");
      }),
      { numRuns: 100 },
    );
  });

  it("is the status and the end-to-end headers in order with their repeats, whatever the status", async () => {
    const { edge, raw, reported } = await serve();
    const submitted = edge.next();
    const client = raw();
    client.post(BODY);
    const { tunnel } = await submitted;
    tunnel.start(
      [
        ["Date", "Tue, 01 Jan 2030 00:00:00 GMT"],
        ["Set-Cookie", "a=1"],
        ["X-Thing", "caf\u00e9"],
        ["set-cookie", "b=2"],
        ["Connection", "X-Hop"],
        ["connection", "close"],
        ["x-hop", "1"],
        ["Transfer-Encoding", "chunked"],
        ["Keep-Alive", "timeout=1"],
        ["Trailer", "x"],
        ["Proxy-Authenticate", "Basic"],
        ["X-Iop-Request-Id", "forged"],
        ["X-Accel-Buffering", "yes"],
        ["Content-Encoding", "gzip"],
      ],
      429,
    );
    tunnel.send({ kind: "usage", usage: { inputTokens: 3 } });
    tunnel.end();
    await client.until("0\r\n\r\n");
    const [info] = await reported(1);
    expect(client.text).toBe(
      [
        "HTTP/1.1 429 Too Many Requests",
        "Date: Tue, 01 Jan 2030 00:00:00 GMT",
        "Set-Cookie: a=1",
        "X-Thing: caf\u00e9",
        "set-cookie: b=2",
        "X-Accel-Buffering: yes",
        "Content-Encoding: gzip",
        `x-iop-request-id: ${info?.requestId}`,
        "x-iop-node: node-1",
        "x-iop-provider: p",
        "x-iop-target: served",
        "Connection: keep-alive",
        "Keep-Alive: timeout=75",
        "Transfer-Encoding: chunked",
        "",
        "0",
        "",
        "",
      ].join("\r\n"),
    );
    expect(info).toMatchObject({ status: 429, outcome: "completed", usage: { inputTokens: 3 } });
  });

  it("comes at once: the head before any body, each piece before the next", async () => {
    const { edge, raw } = await serve();
    const submitted = edge.next();
    const client = raw();
    client.post(BODY);
    const { tunnel } = await submitted;
    tunnel.start([["content-type", "text/event-stream"]]);
    await client.until("\r\n\r\n");
    tunnel.body("data: 1\n\n");
    await client.until("data: 1\n\n");
    tunnel.body("data: 2\n\n");
    await client.until("data: 2\n\n");
    expect(client.text).not.toContain("0\r\n\r\n");
    tunnel.end();
    await client.until("0\r\n\r\n");
  });

  it.each([
    [204, [["content-length", "5"]], undefined],
    [304, [["content-length", "5"]], "5"],
  ] as const)("has no body on a %i", async (status, headers, length) => {
    const { ask, edge } = await serve();
    for (let i = 0; i < 2; i += 1) {
      const submitted = edge.next();
      const answering = ask({ body: BODY });
      const { tunnel } = await submitted;
      tunnel.start(headers, status);
      tunnel.body("12345");
      tunnel.end();
      const answer = await answering;
      expect([answer.status, answer.body.length, answer.headers["content-length"]]).toEqual([
        status,
        0,
        length,
      ]);
      expect(answer.headers["transfer-encoding"]).toBeUndefined();
    }
  });

  it.each([
    ["status 101", 101, []],
    ["status 0", 0, []],
    ["status 1000", 1000, []],
    ["a line break in a header", 200, [["x", "a\r\nset-cookie: b"]]],
    ["a name that is none", 200, [["x y", "a"]]],
    [
      "two lengths",
      200,
      [
        ["content-length", "1"],
        ["Content-Length", "2"],
      ],
    ],
    ["a length that is none", 200, [["content-length", "-1"]]],
  ] as const)("is a 502 for %s, and the work is stopped", async (_, status, headers) => {
    const { ask, edge, reported } = await serve();
    const submitted = edge.next();
    const answering = ask({ body: BODY });
    const { tunnel } = await submitted;
    tunnel.start(headers, status);
    const answer = await answering;
    expect(answer.status).toBe(502);
    expect(answer.headers["set-cookie"]).toBeUndefined();
    expect(errorOf(answer)).toMatchObject({ error: { code: "invalid_provider_response" } });
    expect(tunnel.cancelled).toEqual(["returned"]);
    expect(await reported(1)).toMatchObject([{ outcome: "refused", status: 502 }]);
  });

  it("is a 502 where the body comes before the start", async () => {
    const { ask, edge } = await serve();
    const submitted = edge.next();
    const answering = ask({ body: BODY });
    (await submitted).tunnel.body("x");
    expect((await answering).status).toBe(502);
  });
});

describe("a response that breaks off", () => {
  it.each([
    ["chunked", "1.1", []],
    ["of a known length", "1.1", [["content-length", "10"]]],
    ["of a known length on HTTP/1.0", "1.0", [["content-length", "10"]]],
  ] as const)("delivers what came and never looks whole: %s", async (_, version, headers) => {
    const { edge, raw, reported } = await serve();
    const submitted = edge.next();
    const client = raw();
    client.send(
      `POST /v1/chat/completions HTTP/${version}\r\nhost: x\r\ncontent-type: application/json\r\n` +
        `content-length: ${BODY.length}\r\n\r\n${BODY}`,
    );
    const { tunnel } = await submitted;
    tunnel.start(headers);
    tunnel.body("12345");
    tunnel.fail("provider_stream_cut");
    expect(await client.closed).toBeUndefined();
    expect(client.text).toContain("12345");
    expect(client.text).not.toMatch(/error|0\r\n\r\n$/);
    expect(await reported(1)).toMatchObject([
      { outcome: "cut", code: "provider_stream_cut", status: 200, dispatch: { providerId: "p" } },
    ]);
  });

  it("is a reset where the end of the connection would be the end of the body", async () => {
    const { edge, raw, reported } = await serve();
    const submitted = edge.next();
    const client = raw();
    client.send(
      "POST /v1/chat/completions HTTP/1.0\r\nhost: x\r\ncontent-type: application/json\r\n" +
        `content-length: ${BODY.length}\r\n\r\n${BODY}`,
    );
    const { tunnel } = await submitted;
    tunnel.start();
    tunnel.body("12345");
    await client.until("12345");
    tunnel.fail("node_lost");
    expect(await client.closed).toBe("ECONNRESET");
    expect(await reported(1)).toMatchObject([{ outcome: "cut", code: "node_lost" }]);
  });

  it.each([
    ["more", "1234567890!", "content_length_exceeded"],
    ["less", "12345", "content_length_not_reached"],
  ])("is what a body of %s than its announced length becomes", async (_, body, code) => {
    const { edge, raw, reported } = await serve();
    const submitted = edge.next();
    const client = raw();
    client.post(BODY);
    const { tunnel } = await submitted;
    tunnel.start([["content-length", "10"]]);
    tunnel.body(body);
    tunnel.end();
    await client.closed;
    expect(client.text).not.toContain("!");
    expect(await reported(1)).toMatchObject([{ outcome: "cut", code }]);
  });

  it("is what a second start makes of it", async () => {
    const { edge, raw, reported } = await serve();
    const submitted = edge.next();
    const client = raw();
    client.post(BODY);
    const { tunnel } = await submitted;
    tunnel.start();
    tunnel.start();
    await client.closed;
    expect(await reported(1)).toMatchObject([{ outcome: "cut", code: "invalid_provider_response" }]);
    expect(tunnel.cancelled).toHaveLength(1);
  });
});
