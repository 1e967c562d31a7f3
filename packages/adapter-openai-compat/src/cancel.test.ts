import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { Socket } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import { answering, codeOf, providerAt, tcpServer } from "./testing/loopback.ts";

const LIMIT_MS = 1_000;

/** A server that answers with `answer` and stays silent; tells when a request has come and when its connection has gone. */
async function hanging(
  answer: string,
): Promise<{ origin: string; asked: Promise<void>; gone: Promise<void> }> {
  const asked = Promise.withResolvers<void>();
  const gone = Promise.withResolvers<void>();
  const { origin } = await answering((socket) => {
    socket.once("close", () => gone.resolve());
    if (answer !== "") socket.write(answer);
    asked.resolve();
  });
  return { origin, asked: asked.promise, gone: gone.promise };
}

/** How long after `act` the promise resolves, in milliseconds. */
async function after(act: () => unknown, done: Promise<unknown>): Promise<number> {
  const start = performance.now();
  act();
  await done;
  return performance.now() - start;
}

const STREAM = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

describe("the signal", () => {
  it("ends an exchange that is still connecting", async () => {
    const { promise: connected, resolve } = Promise.withResolvers<Socket>();
    // A TLS handshake that is never answered.
    const { origin } = await tcpServer((socket) => resolve(socket.resume()));
    const abort = new AbortController();
    const provider = providerAt(origin.replace("http:", "https:"));
    const code = codeOf(provider.tunnel({}, abort.signal));
    const socket = await connected;
    const closed = new Promise((done) => {
      socket.once("close", done);
    });
    expect(await after(() => abort.abort(), closed)).toBeLessThan(LIMIT_MS);
    expect(await code).toBe("cancelled");
  });

  it.each([
    ["before the head", ""],
    ["within the head", "HTTP/1.1 200 OK\r\nContent-"],
  ])("ends an exchange %s", async (_name, answer) => {
    const { origin, asked, gone } = await hanging(answer);
    const abort = new AbortController();
    const code = codeOf(providerAt(origin).tunnel({}, abort.signal));
    await asked;
    expect(await after(() => abort.abort(), gone)).toBeLessThan(LIMIT_MS);
    expect(await code).toBe("cancelled");
  });

  it("ends an exchange before its body's first byte", async () => {
    const { origin, gone } = await hanging(STREAM);
    const abort = new AbortController();
    const { body } = await providerAt(origin).tunnel({}, abort.signal);
    const code = codeOf(body[Symbol.asyncIterator]().next());
    expect(await after(() => abort.abort(), gone)).toBeLessThan(LIMIT_MS);
    expect(await code).toBe("cancelled");
  });

  it.each([
    ["in the middle of a stream", `${STREAM}5\r\nhello\r\n`],
    ["in the middle of a body of known length", "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello"],
  ])("ends an exchange %s", async (_name, answer) => {
    const { origin, gone } = await hanging(answer);
    const abort = new AbortController();
    const response = await providerAt(origin).tunnel({}, abort.signal);
    const chunks = response.body[Symbol.asyncIterator]();
    expect((await chunks.next()).value).toHaveLength(5);
    expect(await after(() => abort.abort(), gone)).toBeLessThan(LIMIT_MS);
    expect(await codeOf(chunks.next())).toBe("cancelled");
    expect(await chunks.next()).toEqual({ done: true, value: undefined });
    expect(response.usage()).toBeUndefined();
  });

  it("settles the exchange after its connection has closed", async () => {
    let open = 0;
    const connected = (message: unknown): void => {
      if (typeof message === "object" && message !== null && "socket" in message)
        if (message.socket instanceof Socket) {
          open++;
          message.socket.once("close", () => open--);
        }
    };
    subscribe("undici:client:connected", connected);
    onTestFinished(() => void unsubscribe("undici:client:connected", connected));
    const { origin, asked } = await hanging("");
    const abort = new AbortController();
    const code = codeOf(providerAt(origin).tunnel({}, abort.signal));
    await asked;
    expect(open).toBe(1);
    abort.abort();
    expect(await code).toBe("cancelled");
    expect(open).toBe(0);
  });

  it("drops what has been received and not been read", async () => {
    const { origin, gone } = await hanging(`${STREAM}5\r\nhello\r\n`);
    const abort = new AbortController();
    const { body } = await providerAt(origin).tunnel({}, abort.signal);
    abort.abort();
    await gone;
    expect(await codeOf(body[Symbol.asyncIterator]().next())).toBe("cancelled");
  });

  it("changes nothing once the response has ended", async () => {
    const { origin } = await answering((socket) =>
      socket.write("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"),
    );
    const abort = new AbortController();
    const provider = providerAt(origin);
    const { body } = await provider.tunnel({}, abort.signal);
    const chunks = body[Symbol.asyncIterator]();
    expect((await chunks.next()).value).toHaveLength(5);
    expect((await chunks.next()).done).toBe(true);
    abort.abort();
    expect((await provider.tunnel()).status).toBe(200);
  });

  it("of one exchange leaves the others alone", async () => {
    const { origin } = await answering((socket) => socket.write(`${STREAM}5\r\nhello\r\n`));
    const provider = providerAt(origin);
    const abort = new AbortController();
    const first = (await provider.tunnel({}, abort.signal)).body[Symbol.asyncIterator]();
    const second = (await provider.tunnel()).body[Symbol.asyncIterator]();
    await first.next();
    abort.abort();
    expect(await codeOf(first.next())).toBe("cancelled");
    expect((await second.next()).value).toHaveLength(5);
    await second.return?.();
  });
});

describe("a reader that returns early", () => {
  it("closes the connection before its return resolves", async () => {
    const { origin, gone } = await hanging(`${STREAM}5\r\nhello\r\n`);
    const { body } = await providerAt(origin).tunnel();
    for await (const chunk of body) {
      expect(chunk).toHaveLength(5);
      break;
    }
    expect(await after(() => {}, gone)).toBeLessThan(LIMIT_MS);
  });

  it("may do so without having read", async () => {
    const { origin, gone } = await hanging(STREAM);
    const { body } = await providerAt(origin).tunnel();
    await body[Symbol.asyncIterator]().return?.();
    await gone;
  });
});

describe("stop", () => {
  it("closes connections, those that are being opened too", async () => {
    const sockets: Promise<unknown>[] = [];
    const two = Promise.withResolvers<void>();
    const { origin } = await tcpServer((socket) => {
      sockets.push(
        new Promise((resolve) => {
          socket.resume().once("close", resolve);
        }),
      );
      if (sockets.length === 2) two.resolve();
    });
    const plain = providerAt(origin);
    const tls = providerAt(origin.replace("http:", "https:"));
    const codes = [codeOf(plain.tunnel()), codeOf(tls.tunnel())];
    await two.promise;
    await Promise.all([plain.provider.stop?.(), tls.provider.stop?.()]);
    await Promise.all(sockets);
    expect(await Promise.all(codes)).toEqual(["provider_error", "provider_unavailable"]);
  });
});
