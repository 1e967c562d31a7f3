import { createServer } from "node:http";
import { once } from "node:events";
import { describe, expect, it } from "vitest";
import { FakeEdge } from "./testing/fake-edge.ts";
import { RawClient } from "./testing/raw-client.ts";
import { serve } from "./testing/served.ts";
import { createHttpSurface } from "./index.ts";

const BODY = '{"model":"m"}';
const HEAD = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n";
const LIST = "GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n";

describe("Expect: 100-continue", () => {
  it("is answered when the head is good, and the body is then read", async () => {
    const { edge, raw } = await serve();
    const submitted = edge.next();
    const client = raw();
    client.send(`${HEAD}expect: 100-Continue\r\ncontent-length: ${BODY.length}\r\n\r\n`);
    await client.until("HTTP/1.1 100 Continue\r\n\r\n");
    client.send(BODY);
    const { tunnel, submission } = await submitted;
    expect(submission.headers?.map(([name]) => name)).toEqual(["content-type"]);
    tunnel.start([["content-length", "0"]]);
    tunnel.end();
    await client.until("HTTP/1.1 200 OK");
    expect(client.text.match(/100 Continue/g)).toHaveLength(1);
  });

  it.each([
    [
      "401",
      "content-length: 13",
      { access: { apiKeys: [{ name: "a", sha256: "0".repeat(64), models: ["*"] }] } },
    ],
    ["413", "content-length: 100000000000", {}],
    ["415", "content-length: 13\r\ncontent-encoding: br", {}],
    ["429", "content-length: 13", { bufferedRequestBytes: 12 }],
  ])(
    "is not answered where the head is refused with %s, and the connection ends",
    async (status, headers, options) => {
      const { raw, reported } = await serve(options);
      const client = raw();
      client.send(`${HEAD}expect: 100-continue\r\n${headers}\r\n\r\n`);
      expect(await client.closed).toBeUndefined();
      expect(client.text).toMatch(new RegExp(`^HTTP/1.1 ${status} `));
      expect(client.text).toMatch(/connection: close\r\n/i);
      expect(await reported(1)).toMatchObject([{ outcome: "refused" }]);
    },
  );

  it("is a 417 for any other expectation", async () => {
    const { raw } = await serve();
    const client = raw();
    client.send(`${HEAD}expect: tea\r\ncontent-length: 13\r\n\r\n`);
    await client.closed;
    expect(client.text).toMatch(/^HTTP\/1.1 417 [^]*"expectation_failed"/);
  });

  it("works in a server that answers it by itself", async () => {
    const edge = new FakeEdge();
    const server = createServer(createHttpSurface({ edge, access: { apiKeys: [] } }));
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    const address = server.address();
    const client = new RawClient(typeof address === "object" && address !== null ? address.port : 0);
    const submitted = edge.next();
    client.send(`${HEAD}expect: 100-continue\r\ncontent-length: ${BODY.length}\r\n\r\n${BODY}`);
    const { tunnel } = await submitted;
    tunnel.start([["content-length", "0"]]);
    tunnel.end();
    await client.until("HTTP/1.1 200 OK");
    expect(client.text.match(/100 Continue/g)).toHaveLength(1);
    await client.destroy();
    server.close();
    await once(server, "close");
  });
});

describe("a connection after an error", () => {
  it.each([
    ["unread", `${HEAD.replace("json", "xml")}content-length: 13\r\n\r\n${BODY}`, 415],
    ["half read", `${HEAD}content-length: 13\r\n\r\n!${BODY.slice(1)}`, 400],
  ])("serves the next request: the body was %s", async (_, request, status) => {
    const { raw, reported } = await serve();
    const client = raw();
    client.send(request);
    client.send(LIST);
    await client.until('"object":"list"');
    expect(client.text.match(/HTTP\/1.1 \d+/g)).toEqual([`HTTP/1.1 ${status}`, "HTTP/1.1 200"]);
    await reported(2);
  });

  it("waits for a small rest of a body that is still to come", async () => {
    const { raw } = await serve();
    const client = raw();
    client.send(`${HEAD}content-length: 60000\r\n\r\n!`);
    await client.until('"invalid_json"');
    client.send("x".repeat(59_999));
    client.send(LIST);
    await client.until('"object":"list"');
    expect(client.text).not.toMatch(/connection: close/i);
  });

  it("closes where nobody knows how much of a body is left", async () => {
    const { raw } = await serve();
    const client = raw();
    client.send(`${HEAD}transfer-encoding: chunked\r\n\r\n1\r\n!\r\n`);
    await client.until('"invalid_json"');
    client.send("0\r\n\r\n");
    expect(await client.closed).toBeUndefined();
    expect(client.text).toMatch(/connection: close\r\n/);
  });

  it("answers at once and closes after a large one, which it reads and drops", async () => {
    const { raw, reported } = await serve({ bodyBytes: 1_000 });
    const client = raw();
    client.send(`${HEAD}content-length: 10000000\r\n\r\n${"x".repeat(100)}`);
    await client.until('"body_too_large"');
    expect(client.text).toMatch(/connection: close\r\n/);
    client.send(Buffer.alloc(10_000_000 - 100, "x"));
    expect(await client.closed).toBeUndefined();
    expect(await reported(1)).toMatchObject([{ status: 413, outcome: "refused" }]);
  });
});

describe("pipelined requests", () => {
  it("are served in order, one after the other", async () => {
    const { edge, raw, reported } = await serve();
    const submitted = edge.next();
    const client = raw();
    client.post(BODY);
    client.post(BODY);
    client.send(LIST);
    const { tunnel } = await submitted;
    tunnel.start();
    tunnel.body("first");
    await client.until("first");
    expect(edge.submitted).toHaveLength(1);
    const second = edge.next();
    tunnel.end();
    const next = (await second).tunnel;
    next.start();
    next.body("second");
    next.end();
    await client.until('"object":"list"');
    expect(client.text).toMatch(/first[^]*second[^]*"object":"list"/);
    expect(await reported(3)).toMatchObject([
      { operation: "chat_completions" },
      { operation: "chat_completions" },
      { operation: "models" },
    ]);
  });

  it("are bounded, and all end with their connection", async () => {
    const { edge, raw, reported } = await serve();
    const submitted = edge.next();
    const client = raw();
    client.post(BODY);
    const { tunnel } = await submitted;
    for (let i = 0; i < 20; i += 1) client.post(BODY);
    tunnel.start();
    tunnel.body("first");
    await client.until("first");
    await client.destroy();
    const infos = await reported(21);
    expect(infos.filter((info) => info.outcome === "client_closed")).toHaveLength(5);
    expect(infos.filter((info) => info.code === "too_many_pipelined")).toHaveLength(16);
    expect(edge.submitted).toHaveLength(1);
  });
});

describe("messages that are not HTTP", () => {
  it.each([
    ["a request line that is none", "what?\r\n\r\n", 400, "malformed_request"],
    [
      "both framings at once",
      `${HEAD}content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n`,
      400,
      "malformed_request",
    ],
    ["a broken chunk", `${HEAD}transfer-encoding: chunked\r\n\r\nzz\r\n`, 400, "malformed_request"],
    ["headers without end", `${HEAD}x: ${"x".repeat(20_000)}\r\n\r\n`, 431, "headers_too_large"],
  ])("are refused in JSON: %s", async (_, message, status, code) => {
    const { raw } = await serve();
    const client = raw();
    client.send(message);
    await client.closed;
    expect(client.text).toMatch(new RegExp(`^HTTP/1.1 ${status} [^]*"code":"${code}"`));
    expect(client.text.match(/HTTP\/1.1/g)).toHaveLength(1);
  });

  it("end the connection of a response that is under way, and put nothing into it", async () => {
    const { edge, raw, reported } = await serve();
    const submitted = edge.next();
    const client = raw();
    client.post(BODY);
    const { tunnel } = await submitted;
    tunnel.start();
    tunnel.body("first");
    await client.until("first");
    client.send("what?\r\n\r\n");
    await client.closed;
    expect(client.text).toMatch(/first\r\n$/);
    expect(tunnel.cancelled).toEqual(["client_closed"]);
    await reported(1);
  });
});

it("keeps idle connections for 75 s", async () => {
  const { server } = await serve();
  expect(server.keepAliveTimeout).toBe(75_000);
  expect(server.timeout).toBe(0);
});
