import { once } from "node:events";
import type { Socket } from "node:net";
import { connect as connectPlain, createServer as createPlainServer } from "node:net";
import { connect as connectTls, createServer as createTlsServer } from "node:tls";

import { afterEach, beforeAll, describe, expect, test, vi } from "vitest";

import { type Authority, createAuthority, type Identity } from "../../../test/support/certificates.ts";
import { transportCases } from "./conformance.ts";
import type { HandshakeFailure, TlsOptions } from "./tls.ts";
import { tls } from "./tls.ts";
import type { Connection, Listener } from "./transport.ts";

const HOST = "127.0.0.1";
let authority: Authority;
let identity: Identity;
const releases: Array<() => unknown> = [];

beforeAll(async () => {
  authority = await createAuthority();
  identity = await authority.issue();
});
afterEach(async () => {
  vi.useRealTimers();
  for (const release of releases.splice(0)) await release();
});

function portOf(address: string): number {
  return Number(address.split(":").at(-1));
}

interface Listening {
  readonly listener: Listener;
  readonly port: number;
  readonly accepted: Connection[];
  readonly failures: HandshakeFailure[];
  /** Resolves once so many handshakes have failed. */
  failed(count: number): Promise<void>;
}

async function listening(options: Partial<TlsOptions> = {}): Promise<Listening> {
  const accepted: Connection[] = [];
  const failures: HandshakeFailure[] = [];
  const waiting: Array<{ count: number; resolve: () => void }> = [];
  const transport = tls({
    host: HOST,
    port: 0,
    ...identity,
    onError: (failure) => {
      failures.push(failure);
      for (const { count, resolve } of waiting) if (failures.length >= count) resolve();
    },
    ...options,
  });
  const listener = await transport.listen({
    accept: (connection) => {
      accepted.push(connection);
      // An echo.
      connection.open({ data: (chunk) => connection.write([chunk]), drained: () => {}, closed: () => {} });
    },
  });
  releases.push(async () => {
    await listener.close();
    for (const connection of accepted) connection.destroy();
  });
  return {
    listener,
    port: portOf(listener.address),
    accepted,
    failures,
    failed: (count) =>
      new Promise((resolve) => {
        if (failures.length >= count) resolve();
        else waiting.push({ count, resolve });
      }),
  };
}

function dial(port: number, options: Partial<TlsOptions> = {}): Promise<Connection> {
  return tls({ host: HOST, port, ca: authority.ca, ...options }).dial({
    signal: AbortSignal.timeout(10_000),
  });
}

/** What a dial rejects with. */
async function refusal(dialled: Promise<Connection>): Promise<unknown> {
  try {
    const connection = await dialled;
    connection.destroy();
    return "it was accepted";
  } catch (error) {
    return error;
  }
}

/** The error of `tls` itself, or the transport. */
function build(options: Partial<TlsOptions>): unknown {
  try {
    return tls({ host: HOST, port: 0, ...options });
  } catch (error) {
    return error;
  }
}

/** Sends a word and waits for its echo: the listening end serves. */
async function serves({ port }: Listening): Promise<void> {
  const connection = await dial(port);
  const { promise, resolve } = Promise.withResolvers<string>();
  connection.open({
    data: (chunk) => resolve(Buffer.from(chunk).toString()),
    drained: () => {},
    closed: () => resolve("closed"),
  });
  connection.write([Buffer.from("hel"), Buffer.from("lo")]);
  expect(await promise).toBe("hello");
  connection.destroy();
}

async function plainPeer(port: number): Promise<Socket> {
  const socket = connectPlain({ host: HOST, port });
  socket.on("error", () => {});
  socket.resume();
  releases.push(() => socket.destroy());
  await once(socket, "connect");
  return socket;
}

/** Listens with `server` on a free port. */
async function portFor(server: ReturnType<typeof createPlainServer>): Promise<number> {
  const sockets = new Set<Socket>();
  server.on("connection", (socket: Socket) => {
    sockets.add(socket);
    socket.on("error", () => {});
  });
  releases.push(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  server.listen(0, HOST);
  await once(server, "listening");
  const address = server.address();
  return typeof address === "object" && address !== null ? address.port : 0;
}

describe("conformance", () => {
  const cases = transportCases(() => ({
    listening: tls({ host: HOST, port: 0, ...identity }),
    dialling: (address) => tls({ host: HOST, port: portOf(address), ca: authority.ca }),
  }));
  for (const { name, run } of cases) test(name, run);
});

describe("dialling", () => {
  test("rejects a certificate of another authority, also one of the same name", async () => {
    const edge = await listening();
    for (const name of ["Test CA", "Other CA"]) {
      const { ca } = await createAuthority(name);
      expect(await refusal(dial(edge.port, { ca }))).toMatchObject({
        code: "certificate_rejected",
        message: expect.stringMatching(/^127\.0\.0\.1:\d+: the certificate is not trusted \([A-Z_]+\)$/),
      });
    }
    await serves(edge);
  });

  test("trusts each of several authorities", async () => {
    const edge = await listening();
    const other = await createAuthority("Other CA");
    const connection = await dial(edge.port, { ca: `${other.ca}\n${authority.ca}\n` });
    connection.destroy();
  });

  test("rejects an expired certificate, and one that is not valid yet", async () => {
    const expired = await listening(await authority.issue({ days: [-2, -1] }));
    expect(await refusal(dial(expired.port))).toMatchObject({
      code: "certificate_rejected",
      message: expect.stringContaining("has expired"),
    });
    const early = await listening(await authority.issue({ days: [1, 2] }));
    expect(await refusal(dial(early.port))).toMatchObject({
      code: "certificate_rejected",
      message: expect.stringContaining("is not valid yet"),
    });
  });

  test("rejects a certificate of another name; serverName says which it is to be", async () => {
    const edge = await listening(await authority.issue({ names: ["edge.example", "10.1.2.3"] }));
    expect(await refusal(dial(edge.port))).toMatchObject({
      code: "certificate_rejected",
      message: expect.stringContaining("the certificate is not for 127.0.0.1"),
    });
    expect(await refusal(dial(edge.port, { serverName: "other.example" }))).toMatchObject({
      code: "certificate_rejected",
      message: expect.stringContaining("not for other.example"),
    });
    for (const serverName of ["edge.example", "10.1.2.3"]) {
      const connection = await dial(edge.port, { serverName });
      connection.destroy();
    }
  });

  test("a peer of TLS 1.2, without TLS, or that closes at once is dial_failed", async () => {
    const old = await portFor(createTlsServer({ ...identity, maxVersion: "TLSv1.2" }));
    const plain = await portFor(
      createPlainServer((socket) => socket.end("HTTP/1.1 400 Bad Request\r\n\r\n")),
    );
    const rude = await portFor(createPlainServer((socket) => socket.destroy()));
    for (const port of [old, plain, rude])
      expect(await refusal(dial(port))).toMatchObject({
        code: "dial_failed",
        message: expect.stringContaining(`127.0.0.1:${port}: `),
      });
  });

  test("an abort in the middle of a handshake closes the socket", async () => {
    const closed = Promise.withResolvers<void>();
    const began = Promise.withResolvers<void>();
    const silent = createPlainServer((socket) => {
      socket.once("data", () => began.resolve());
      socket.once("close", () => closed.resolve());
    });
    const port = await portFor(silent);
    const abort = new AbortController();
    const dialled = tls({ host: HOST, port, ca: authority.ca }).dial({ signal: abort.signal });
    await began.promise;
    const reason = new Error("enough");
    abort.abort(reason);
    expect(await refusal(dialled)).toBe(reason);
    await closed.promise;
  });
});

describe("listening", () => {
  test("speaks TLS 1.3 only", async () => {
    const edge = await listening();
    const old = connectTls({ host: HOST, port: edge.port, ca: authority.ca, maxVersion: "TLSv1.2" });
    const [error] = await once(old, "error").catch((failure: unknown) => [failure]);
    expect(error).toMatchObject({ code: "ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION" });
    await edge.failed(1);
    expect(edge.failures[0]?.reason).toBe("TLS: unsupported protocol");

    const current = connectTls({ host: HOST, port: edge.port, ca: authority.ca });
    await once(current, "secureConnect");
    expect(current.getProtocol()).toBe("TLSv1.3");
    current.destroy();
  });

  test("a peer that speaks something else is closed and reported, and harms nobody", async () => {
    const edge = await listening();
    const peers = ["GET / HTTP/1.1\r\n\r\n", "\0\0\0\x03abc", "\x16\x03\x01\xff\xff"];
    const remotes: string[] = [];
    for (const text of peers) {
      const socket = await plainPeer(edge.port);
      remotes.push(`${HOST}:${socket.localPort}`);
      socket.write(text, "latin1");
      await once(socket, "close");
    }
    await edge.failed(peers.length);
    expect(edge.failures.map(({ remote }) => remote)).toEqual(remotes);
    for (const { reason } of edge.failures) expect(reason).toMatch(/^TLS: /);
    expect(edge.accepted).toEqual([]);
    await serves(edge);
  });

  test("a peer that leaves in the middle of its handshake is reported once", async () => {
    const edge = await listening();
    const ended = await plainPeer(edge.port);
    ended.end();
    await edge.failed(1);
    const reset = await plainPeer(edge.port);
    reset.write("\x16\x03\x01\x02\0", "latin1");
    reset.resetAndDestroy();
    await edge.failed(2);
    await serves(edge);
    expect(edge.failures).toHaveLength(2);
  });

  test("a peer that does not finish its handshake in 10 s is closed, however busily it drips", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    const edge = await listening();
    const silent = await plainPeer(edge.port);
    const drip = await plainPeer(edge.port);
    const closed = Promise.all([once(silent, "close"), once(drip, "close")]);
    // Handshakes are taken in turn: once this one is over, both have begun.
    await serves(edge);
    const opening = Buffer.from("160301020001", "hex");
    for (const byte of opening) {
      drip.write(Buffer.of(byte));
      vi.advanceTimersByTime(1_600);
    }
    await serves(edge);
    expect(edge.failures).toEqual([]);
    vi.advanceTimersByTime(400);
    await closed;
    await edge.failed(2);
    for (const { reason } of edge.failures) expect(reason).toBe("no handshake within 10000 ms");
    await serves(edge);
    // Whose handshake is over has no deadline any more.
    vi.advanceTimersByTime(60_000);
    await serves(edge);
    expect(edge.failures).toHaveLength(2);
  });

  test("over 1024 handshakes the oldest gives way, so that an honest peer still comes in", async () => {
    const edge = await listening();
    const oldest = await plainPeer(edge.port);
    const remote = `${HOST}:${oldest.localPort}`;
    const closed = once(oldest, "close");
    const others = await Promise.all(Array.from({ length: 1024 }, () => plainPeer(edge.port)));
    await closed;
    expect(edge.failures).toEqual([{ remote, reason: "gave way: 1024 newer handshakes are under way" }]);
    await serves(edge);
    expect(edge.failures).toHaveLength(2);
    expect(others).toHaveLength(1024);
  });

  test("closing ends the handshakes that are under way, and reports none", async () => {
    const edge = await listening();
    const peer = await plainPeer(edge.port);
    await serves(edge);
    const closed = once(peer, "close");
    await edge.listener.close();
    await closed;
    expect(edge.failures).toEqual([]);
  });
});

describe("what cannot be used is refused at once", () => {
  test("keys and certificates", async () => {
    const other = await authority.issue();
    const broken: Array<Partial<TlsOptions>> = [
      { cert: identity.cert },
      { key: identity.key },
      { cert: identity.cert, key: other.key },
      { cert: "nonsense", key: identity.key },
      { cert: identity.cert, key: "nonsense" },
      { ca: "nonsense" },
      { ca: "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----" },
    ];
    for (const options of broken) {
      const failure = build(options);
      expect(failure).toMatchObject({ code: "invalid_argument" });
      expect(String(failure)).not.toContain(identity.key.slice(40, 60));
    }
  });

  test("a direction that nothing was given for", async () => {
    const edge = tls({ host: HOST, port: 0, ...identity });
    const node = tls({ host: HOST, port: 1, ca: authority.ca });
    expect(await refusal(edge.dial({ signal: AbortSignal.timeout(1_000) }))).toMatchObject({
      code: "invalid_argument",
    });
    const heard: unknown = await node.listen({ accept: () => {} }).catch((error: unknown) => error);
    expect(heard).toMatchObject({ code: "invalid_argument" });
  });
});
