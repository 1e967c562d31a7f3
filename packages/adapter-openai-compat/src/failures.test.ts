import { createServer, type Socket } from "node:net";
import { describe, expect, it } from "vitest";
import { Exchange } from "./exchange.ts";
import { ProviderConnections } from "./provider-connections.ts";
import { answering, codeOf, httpServer, providerAt, readAll, tcpServer } from "./testing/loopback.ts";

/** An address where nobody listens. */
async function deadOrigin(): Promise<string> {
  const server = createServer();
  await new Promise<void>((resolve) => {
    server.listen(0, "127.0.0.1", resolve);
  });
  const address = server.address();
  await new Promise((resolve) => {
    server.close(resolve);
  });
  if (address === null || typeof address === "string") throw new Error("no port");
  return `http://127.0.0.1:${address.port}`;
}

describe("before the response", () => {
  it("is provider_unreachable where nobody listens", async () => {
    expect(await codeOf(providerAt(await deadOrigin()).tunnel())).toBe("provider_unreachable");
  });

  it("is provider_unreachable where the connection does not come about in time", async () => {
    // A TLS handshake that is never answered.
    const { origin } = await tcpServer(() => {});
    const connections = new ProviderConnections({
      origin: origin.replace("http:", "https:"),
      connectTimeoutMs: 50,
    });
    const exchange = new Exchange({
      connections,
      route: { method: "GET", path: "/" },
      headers: [],
      body: [],
      signal: new AbortController().signal,
      firstByteTimeoutMs: 0,
      idleTimeoutMs: 0,
      observe: () => ({ observe: () => {}, end: () => {}, usage: () => undefined }),
    });
    expect(await codeOf(exchange.run())).toBe("provider_unreachable");
    await connections.close();
  });

  it("is provider_error where the connection is lost after sending, and nothing is sent again", async () => {
    let asked = 0;
    const { origin } = await answering((socket) => {
      asked++;
      socket.resetAndDestroy();
    });
    const provider = providerAt(origin);
    expect(await codeOf(provider.tunnel())).toBe("provider_error");
    expect(await codeOf(provider.tunnel({ operation: "models", method: "GET", body: [] }))).toBe(
      "provider_error",
    );
    expect(asked).toBe(2);
  });

  it.each([
    ["not HTTP", "SSH-2.0-OpenSSH\r\n"],
    ["two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx"],
    ["length and chunks", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"],
    ["a head without end", `HTTP/1.1 200 OK\r\nX: ${"x".repeat(40_000)}\r\n\r\n`],
    [
      "a switch of protocols",
      "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    ],
  ])("is provider_error where the answer is %s", async (_name, answer) => {
    const { origin } = await answering((socket) => socket.write(answer));
    expect(await codeOf(providerAt(origin).tunnel())).toBe("provider_error");
  });

  it("is provider_unavailable after stop", async () => {
    const { origin } = await httpServer((_request, response) => response.end());
    const provider = providerAt(origin);
    await provider.provider.stop?.();
    expect(await codeOf(provider.tunnel())).toBe("provider_unavailable");
  });
});

describe("a body that is cut", () => {
  it.each([
    ["before its length", "Content-Length: 10\r\n\r\nhalf"],
    ["between chunks", "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"],
    ["within a chunk", "Transfer-Encoding: chunked\r\n\r\n8\r\nhalf"],
    ["before its first byte", "Transfer-Encoding: chunked\r\n\r\n"],
    ["on a connection that closes", "Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"],
    ["by garbage for a chunk", "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\nnonsense\r\n"],
  ])("%s gives what has come and then throws provider_stream_cut", async (_name, rest) => {
    const { origin } = await answering((socket) => socket.end(`HTTP/1.1 200 OK\r\n${rest}`));
    const { body } = await providerAt(origin).tunnel();
    const chunks: Uint8Array[] = [];
    const code = await codeOf(async () => {
      for await (const chunk of body) chunks.push(chunk);
    });
    expect(code).toBe("provider_stream_cut");
    expect(Buffer.concat(chunks).toString()).toBe(rest.includes("half") ? "half" : "");
  });

  it.each(["", "Content-Length: 10\r\n", "Connection: close\r\nContent-Length: 10\r\n"])(
    "by a reset throws provider_stream_cut (%j)",
    async (header) => {
      let server: Socket | undefined;
      const { origin } = await answering((socket) => {
        socket.write(`HTTP/1.1 200 OK\r\n${header}\r\nhalf`);
        server = socket;
      });
      const { body } = await providerAt(origin).tunnel();
      const code = await codeOf(async () => {
        for await (const chunk of body) {
          expect(Buffer.from(chunk).toString()).toBe("half");
          server?.resetAndDestroy();
        }
      });
      expect(code).toBe("provider_stream_cut");
    },
  );

  it("never shows what it was, not even in a cause", async () => {
    const { origin } = await answering((socket) =>
      socket.end("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\nprivate words\r\n"),
    );
    const { body } = await providerAt(origin).tunnel();
    const failure: unknown = await readAll(body).then(
      () => undefined,
      (error: unknown) => error,
    );
    expect(failure).toBeInstanceOf(Error);
    expect(failure instanceof Error && failure.cause).toBeUndefined();
    expect(String(failure)).not.toContain("private");
  });
});

describe("silence", () => {
  it("before the head is first_byte_timeout", async () => {
    const { origin } = await answering(() => {});
    expect(await codeOf(providerAt(origin).tunnel({ firstByteTimeoutMs: 30 }))).toBe("first_byte_timeout");
  });

  it("between head and body is first_byte_timeout too", async () => {
    const { origin } = await httpServer((_request, response) => response.flushHeaders());
    const provider = providerAt(origin, { firstByteTimeoutMs: 30, idleTimeoutMs: 5 });
    const { body } = await provider.tunnel();
    expect(await codeOf(readAll(body))).toBe("first_byte_timeout");
  });

  it("between chunks is idle_timeout, after what has come, and closes the connection", async () => {
    const { promise: closed, resolve } = Promise.withResolvers<void>();
    const { origin } = await httpServer((_request, response) => {
      response.on("close", resolve);
      response.write("one");
    });
    const provider = providerAt(origin, { firstByteTimeoutMs: 60_000, idleTimeoutMs: 60_000 });
    const { body } = await provider.tunnel({ idleTimeoutMs: 30 });
    const chunks: string[] = [];
    const code = await codeOf(async () => {
      for await (const chunk of body) chunks.push(Buffer.from(chunk).toString());
    });
    expect([code, chunks]).toEqual(["idle_timeout", ["one"]]);
    await closed;
  });

  it("that is ours does not count: a reader may take its time", async () => {
    const big = Buffer.alloc(4 * 1024 * 1024, 7);
    const { origin } = await httpServer((_request, response) => response.end(big));
    const { body } = await providerAt(origin).tunnel({ idleTimeoutMs: 20 });
    let total = 0;
    let waits = 0;
    for await (const chunk of body) {
      total += chunk.byteLength;
      // Longer than the limit, while the connection is paused.
      if (waits++ < 3)
        await new Promise((resolve) => {
          setTimeout(resolve, 60);
        });
    }
    expect(total).toBe(big.length);
  });
});
