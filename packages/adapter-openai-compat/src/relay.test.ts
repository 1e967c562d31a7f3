import { gzipSync } from "node:zlib";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { answering, codeOf, httpServer, profile, providerAt, readAll } from "./testing/loopback.ts";

function usageEvent(usage: string): string {
  return `data: {"choices":[],"usage":${usage}}\n\n`;
}

describe("the request", () => {
  it("arrives with its bytes, its headers and our credential, and nothing invented", async () => {
    const seen: unknown[] = [];
    const { origin } = await httpServer((request, response) => {
      const chunks: Buffer[] = [];
      request.on("data", (chunk: Buffer) => chunks.push(chunk));
      request.on("end", () => {
        seen.push([request.method, request.url, request.rawHeaders, Buffer.concat(chunks).toString()]);
        response.end();
      });
    });
    const provider = providerAt(`${origin}/base`, { authEnv: "KEY" }, { env: () => "sk" });
    const send = async (...body: string[]): Promise<void> => {
      const { body: answer } = await provider.tunnel({
        headers: [
          ["Content-Type", "application/json"],
          ["authorization", "Bearer caller"],
          ["X-Tag", "1"],
          ["X-Tag", "2"],
        ],
        body: body.map((chunk) => Buffer.from(chunk)),
      });
      await readAll(answer);
    };
    await send('{"model":"m"}');
    await send('{"mod', "", 'el":"m"}');
    await send();
    const request = (length: number, text: string): unknown => [
      "POST",
      "/base/v1/chat/completions",
      ["host", origin.slice("http://".length), "connection", "keep-alive", "Content-Type", "application/json"]
        .concat(["X-Tag", "1", "X-Tag", "2", "authorization", "Bearer sk"])
        .concat(["content-length", String(length)]),
      text,
    ];
    expect(seen).toEqual([request(13, '{"model":"m"}'), request(13, '{"model":"m"}'), request(0, "")]);
  });

  it("uses connections again", async () => {
    let connections = 0;
    const { origin, server } = await httpServer((_request, response) => response.end("x"));
    server.on("connection", () => connections++);
    const provider = providerAt(origin);
    for (let i = 0; i < 5; i++) await readAll((await provider.tunnel()).body);
    // The client lets a connection rest for a turn before it is used again.
    expect(connections).toBeLessThanOrEqual(2);
  });

  it("opens as many connections as there are exchanges", async () => {
    const { origin } = await httpServer((_request, response) => response.write("x"));
    const provider = providerAt(origin);
    const open = await Promise.all(Array.from({ length: 20 }, () => provider.tunnel()));
    expect(open.map(({ status }) => status)).toEqual(Array.from({ length: 20 }, () => 200));
    await Promise.all(open.map(async ({ body }) => body[Symbol.asyncIterator]().return?.()));
  });

  it("is refused before anything is sent where it cannot be", async () => {
    let connections = 0;
    const { origin, server } = await httpServer((_request, response) => response.end());
    server.on("connection", () => connections++);
    const provider = providerAt(origin);
    expect(await codeOf(provider.tunnel({ operation: "responses" }))).toBe("unsupported_operation");
    expect(await codeOf(provider.tunnel({ method: "GET" }))).toBe("invalid_request");
    expect(await codeOf(provider.tunnel({ operation: "models", method: "GET" }))).toBe("invalid_request");
    expect(await codeOf(provider.tunnel({ headers: [["x", "a\nb"]] }))).toBe("invalid_request");
    expect(await codeOf(provider.tunnel({}, AbortSignal.abort()))).toBe("cancelled");
    expect(connections).toBe(0);
  });
});

describe("the response", () => {
  it("is the same bytes, however the server cuts them", async () => {
    const sse = Buffer.from(
      Array.from({ length: 200 }, (_, i) => `data: {"i":${i},"t":"${"北é".repeat(i % 50)}"}\n\n`).join(""),
    );
    let cuts: readonly number[] = [];
    const { origin } = await httpServer((_request, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      let from = 0;
      const rest = [...cuts];
      const next = (): void => {
        const cut = rest.shift();
        if (cut === undefined || from >= sse.length) {
          response.end(sse.subarray(from));
          return;
        }
        const chunk = sse.subarray(from, from + cut);
        from += chunk.length;
        // Some in one write with what follows, some by themselves.
        if (cut % 3 === 0) response.write(chunk, next);
        else {
          response.write(chunk);
          next();
        }
      };
      next();
    });
    const provider = providerAt(origin);
    await fc.assert(
      fc.asyncProperty(fc.array(fc.integer({ min: 1, max: 3000 }), { maxLength: 40 }), async (given) => {
        cuts = given;
        const { body } = await provider.tunnel();
        expect((await readAll(body)).equals(sse)).toBe(true);
      }),
      { numRuns: 40 },
    );
  });

  it("stays compressed, and nobody looks for usage in it", async () => {
    const plain = JSON.stringify({ usage: { prompt_tokens: 5, completion_tokens: 7 } });
    const packed = gzipSync(plain);
    let encoding = "gzip";
    let sent: string | Buffer = packed;
    const { origin } = await httpServer((_request, response) => {
      response.setHeader("content-type", "application/json");
      response.setHeader("content-encoding", encoding).end(sent);
    });
    const provider = providerAt(origin);
    const first = await provider.tunnel();
    expect((await readAll(first.body)).equals(packed)).toBe(true);
    expect(first.headers).toContainEqual(["content-encoding", "gzip"]);
    expect(first.headers).toContainEqual(["Content-Length", String(packed.length)]);
    expect(first.usage()).toBeUndefined();
    // Servers lie; then too the client gets what was sent.
    sent = plain;
    const lie = await provider.tunnel();
    expect((await readAll(lie.body)).toString()).toBe(plain);
    expect(lie.usage()).toBeUndefined();
    encoding = "identity";
    const second = await provider.tunnel();
    expect((await readAll(second.body)).toString()).toBe(plain);
    expect(second.usage()).toEqual({ inputTokens: 5, outputTokens: 7 });
  });

  it("keeps its status and its headers, with order, case and repeats, but not those of the hop", async () => {
    const { origin } = await answering((socket) =>
      socket.end(
        [
          "HTTP/1.1 299 Odd",
          "X-First: 1",
          "Set-Cookie: a=1; Expires=Wed, 21 Oct 2026 07:28:00 GMT",
          "set-cookie: b=2",
          "Connection: close, X-Hop",
          "X-Hop: h",
          "Keep-Alive: timeout=5",
          "Proxy-Authenticate: Basic",
          "Trailer: x-sum",
          "Upgrade: h2c",
          "X-Bytes: caf\u00e9",
          "Content-Length: 2",
          "",
          "ok",
        ].join("\r\n"),
        "latin1",
      ),
    );
    const response = await providerAt(origin).tunnel();
    expect(response.status).toBe(299);
    expect(response.headers).toEqual([
      ["X-First", "1"],
      ["Set-Cookie", "a=1; Expires=Wed, 21 Oct 2026 07:28:00 GMT"],
      ["set-cookie", "b=2"],
      ["X-Bytes", "caf\u00e9"],
      ["Content-Length", "2"],
    ]);
    expect((await readAll(response.body)).toString()).toBe("ok");
  });

  it.each([301, 302, 307, 308, 400, 404, 429, 500, 503, 599])(
    "of status %i is relayed as it is",
    async (status) => {
      let asked = 0;
      const { origin } = await httpServer((_request, response) => {
        asked++;
        response.writeHead(status, { location: "/elsewhere" }).end("text");
      });
      const response = await providerAt(origin).tunnel();
      expect(response.status).toBe(status);
      expect(response.headers).toContainEqual(["location", "/elsewhere"]);
      expect((await readAll(response.body)).toString()).toBe("text");
      expect(asked).toBe(1);
    },
  );

  it.each([
    ["204", "HTTP/1.1 204 No Content\r\n\r\n", "POST"],
    ["304 with a length", "HTTP/1.1 304 Not Modified\r\nContent-Length: 40\r\n\r\n", "POST"],
    ["HEAD with a length", "HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n", "HEAD"],
    ["no bytes", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "POST"],
  ])("of %s has no body", async (_name, head, method) => {
    const { origin } = await answering((socket) => socket.write(head));
    const provider = providerAt(origin);
    const over = method === "HEAD" ? { operation: "models", method, body: [] } : {};
    const { body, headers } = await provider.tunnel(over);
    expect(await readAll(body)).toHaveLength(0);
    if (head.includes("40")) expect(headers).toContainEqual(["Content-Length", "40"]);
  });

  it("comes without the interim ones before it", async () => {
    const { origin } = await answering((socket) =>
      socket.write(
        "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n" +
          "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
      ),
    );
    const { status, headers, body } = await providerAt(origin).tunnel();
    expect([status, headers]).toEqual([200, [["Content-Length", "1"]]]);
    expect((await readAll(body)).toString()).toBe("x");
  });

  it("may end with the connection", async () => {
    const { origin } = await answering((socket) => socket.end("HTTP/1.0 200 OK\r\n\r\nall of it"));
    const { body } = await providerAt(origin).tunnel();
    expect((await readAll(body)).toString()).toBe("all of it");
  });

  it("tells the usage that passes in a stream, partial where it is cut", async () => {
    const { origin } = await httpServer((_request, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(usageEvent("null"));
      response.write(usageEvent('{"prompt_tokens":3,"completion_tokens":4}'), () => response.destroy());
    });
    const response = await providerAt(origin).tunnel();
    expect(await codeOf(readAll(response.body))).toBe("provider_stream_cut");
    expect(response.usage()).toEqual({ inputTokens: 3, outputTokens: 4, partial: true });
  });

  it("is not watched where the profile's protocol is another", async () => {
    const { origin } = await httpServer((_request, response) => {
      response.setHeader("content-type", "application/json").end('{"usage":{"prompt_tokens":5}}');
    });
    const provider = providerAt(origin, { profile: { ...profile, driver: "openai_responses" } });
    const response = await provider.tunnel();
    await readAll(response.body);
    expect(response.usage()).toBeUndefined();
  });
});
