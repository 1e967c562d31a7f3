import { createHash } from "node:crypto";
import { describe, expect, it } from "vitest";
import { HttpAccess } from "./http-access.ts";
import { errorOf, serve } from "./testing/served.ts";

const sha256 = (key: string): string => createHash("sha256").update(key).digest("hex");
const as = (key: string): { authorization: string } => ({ authorization: `Bearer ${key}` });
const BODY = '{"model":"m"}';

describe("API keys", () => {
  const apiKeys = [
    { name: "alice", sha256: sha256("sk-alice"), models: ["*"] },
    { name: "bob", sha256: sha256("sk-bob").toUpperCase(), models: ["org/*"] },
  ];

  it.each([
    ["none", {}],
    ["another scheme", { authorization: "Basic c2stYWxpY2U=" }],
    ["a wrong key", as("sk-alicE")],
    ["an empty key", { authorization: "Bearer " }],
    ["two words", as("sk-alice x")],
    ["the hash itself", as(sha256("sk-alice"))],
  ])("refuses %s", async (_, headers) => {
    const { ask, edge } = await serve({ access: { apiKeys } });
    for (const request of [
      { headers, body: BODY },
      { headers, method: "GET", path: "/v1/models" },
    ]) {
      const answer = await ask(request);
      expect(answer.status).toBe(401);
      expect(answer.headers["www-authenticate"]).toBe('Bearer realm="iop"');
      expect(errorOf(answer)).toMatchObject({
        error: { code: "invalid_api_key", type: "invalid_request_error" },
      });
    }
    expect(edge.submitted).toEqual([]);
  });

  it("names the caller to the Edge and to the log, and withholds the key from the provider", async () => {
    const { ask, edge, reported } = await serve({ access: { apiKeys } });
    const submitted = edge.next();
    const answer = ask({
      headers: { authorization: "bearer   sk-bob" },
      body: '{"model":"org/other"}',
    });
    const { submission, tunnel } = await submitted;
    expect(submission.principal).toBe("bob");
    expect(JSON.stringify(submission.headers)).not.toMatch(/sk-bob|authorization/i);
    tunnel.start();
    tunnel.end();
    expect((await answer).status).toBe(200);
    expect(await reported(1)).toMatchObject([{ key: "bob", model: "org/other", outcome: "completed" }]);
  });

  it("answers for a model that the key may not use exactly as for one that is not there", async () => {
    const { ask } = await serve({ access: { apiKeys } });
    const forbidden = await ask({ headers: as("sk-bob"), body: BODY });
    const unknown = await ask({ headers: as("sk-alice"), body: '{"model":"gone"}' });
    expect(forbidden.status).toBe(404);
    expect(unknown.status).toBe(404);
    expect(forbidden.body.toString().replace("`m`", "`gone`")).toBe(unknown.body.toString());
    expect(errorOf(unknown)).toMatchObject({ error: { code: "model_not_found", param: "model" } });
  });

  it("lists only models that the key may use, and shows each under its id", async () => {
    const { ask } = await serve({ access: { apiKeys } });
    const get = async (path: string, key: string): Promise<unknown> => {
      const answer = await ask({ method: "GET", path, headers: as(key) });
      return [answer.status, JSON.parse(answer.body.toString())];
    };
    const other = { id: "org/other", object: "model", created: expect.any(Number), owned_by: "iop" };
    expect(await get("/v1/models?limit=1", "sk-bob")).toEqual([200, { object: "list", data: [other] }]);
    expect(await get("/v1/models", "sk-alice")).toMatchObject([
      200,
      { data: [{ id: "m" }, { id: "org/other" }] },
    ]);
    expect(await get("/v1/models/org/other", "sk-bob")).toEqual([200, other]);
    expect(await get("/v1/models/org%2Fother", "sk-bob")).toEqual([200, other]);
    expect(await get("/v1/models/m", "sk-bob")).toMatchObject([404, { error: { code: "model_not_found" } }]);
    expect(await get("/v1/models/%zz", "sk-alice")).toMatchObject([404, {}]);
    const head = await ask({ method: "HEAD", path: "/v1/models", headers: as("sk-alice") });
    expect(head.body.length).toBe(0);
    expect(Number(head.headers["content-length"])).toBeGreaterThan(50);
  });

  it.each([
    [[{ name: "a", sha256: "abc", models: [] }], /64 hexadecimal/],
    [[...apiKeys, { name: "c", sha256: sha256("sk-bob"), models: [] }], /another entry/],
    [[...apiKeys, { name: "bob", sha256: sha256("c"), models: [] }], /twice/],
  ])("does not start with keys that contradict each other", async (keys, message) => {
    await expect(serve({ access: { apiKeys: keys } })).rejects.toThrow(message);
  });

  it("may be replaced while it serves: for the next request, not for one that runs", async () => {
    const access = new HttpAccess({ apiKeys });
    const { ask, edge } = await serve({ access });
    const list = async (key: string): Promise<number> =>
      (await ask({ method: "GET", path: "/v1/models", headers: as(key) })).status;
    const submitted = edge.next();
    const running = ask({ body: BODY, headers: as("sk-alice"), apart: true });
    const { tunnel } = await submitted;

    const wrong = [{ name: "x", sha256: "short", models: ["*"] }];
    expect(() => access.replace({ apiKeys: wrong })).toThrow("64 hexadecimal digits");
    expect(await list("sk-alice")).toBe(200);
    access.replace({
      apiKeys: [{ name: "alice", sha256: sha256("sk-new"), models: ["*"] }],
      allowedHosts: ["127.0.0.1"],
    });
    expect([await list("sk-alice"), await list("sk-new")]).toEqual([401, 200]);
    expect((await ask({ body: BODY, headers: { ...as("sk-new"), host: "elsewhere" } })).status).toBe(403);

    tunnel.start();
    tunnel.end();
    expect((await running).status).toBe(200);
  });
});

describe("hosts and origins", () => {
  const options = {
    access: {
      apiKeys: [],
      allowedHosts: ["localhost", "edge.example:8080", "::1"],
      allowedOrigins: ["https://a.example"],
    },
  };

  it.each([
    ["localhost", 200],
    ["LOCALHOST:1234", 200],
    ["[::1]:8080", 200],
    ["[::1]", 200],
    ["edge.example:8080", 200],
    ["edge.example", 403],
    ["edge.example:8081", 403],
    ["evil.example", 403],
    ["localhost.evil.example", 403],
    ["localhost@evil.example", 403],
    ["", 403],
  ])("Host %s: %i", async (host, status) => {
    const { ask } = await serve(options);
    expect((await ask({ method: "GET", path: "/v1/models", headers: { host } })).status).toBe(status);
  });

  it.each([
    ["https://a.example", 200],
    ["http://a.example", 403],
    ["https://a.example:444", 403],
    ["null", 403],
  ])("Origin %s: %i", async (origin, status) => {
    const { ask } = await serve(options);
    const answer = await ask({ method: "GET", path: "/v1/models", headers: { host: "localhost", origin } });
    expect(answer.status).toBe(status);
  });

  it("refuses every origin where none is listed, and a request without a Host", async () => {
    const { ask, raw } = await serve();
    const answer = await ask({ body: BODY, headers: { origin: "https://a.example" } });
    expect(errorOf(answer)).toMatchObject({ error: { code: "origin_not_allowed" } });
    const client = raw();
    client.send("GET /v1/models HTTP/1.1\r\n\r\n");
    await client.until('"code":"missing_host"');
    expect(client.text).toMatch(/^HTTP\/1.1 400 /);
  });
});

describe("paths and methods", () => {
  it.each([
    ["GET", "/", 404],
    ["POST", "/v1/chat/completions/", 404],
    ["POST", "/v1/responses", 404],
    ["GET", "/v1/modelsx", 404],
    ["POST", "/v1//chat/completions", 404],
    ["POST", "http://localhost/v1/chat/completions", 404],
  ])("%s %s: %i", async (method, path, status) => {
    const { ask, reported } = await serve();
    const answer = await ask({ method, path, ...(method === "POST" ? { body: BODY } : {}) });
    expect(answer.status).toBe(status);
    expect(errorOf(answer)).toMatchObject({ error: { code: "not_found" } });
    expect(await reported(1)).toMatchObject([
      { outcome: "refused", code: "not_found", operation: undefined },
    ]);
  });

  it.each([
    ["GET", "/v1/chat/completions", "POST"],
    ["DELETE", "/v1/models/m", "GET, HEAD"],
    ["OPTIONS", "/v1/models", "GET, HEAD"],
  ])("%s %s says what is allowed", async (method, path, allow) => {
    const { ask } = await serve();
    const answer = await ask({ method, path });
    expect([answer.status, answer.headers.allow]).toEqual([405, allow]);
    expect(errorOf(answer)).toMatchObject({ error: { code: "method_not_allowed" } });
  });
});

describe("bodies", () => {
  it.each([
    ["text/plain", 415],
    ["application/jsonx", 415],
    ["application/x-www-form-urlencoded", 415],
    ["application/json; charset=utf-16", 415],
    ["", 415],
    ["Application/JSON;charset=UTF-8", 200],
    ['application/json; charset="utf-8"', 200],
    ["application/json ; x=y", 200],
  ])("content-type %s: %i", async (type, status) => {
    const { ask, edge } = await serve();
    const submitted = edge.next();
    const answer = ask({ body: BODY, headers: { "content-type": type } });
    if (status === 200) {
      const { tunnel } = await submitted;
      tunnel.start();
      tunnel.end();
    }
    expect((await answer).status).toBe(status);
  });

  it("refuses two content types, and none", async () => {
    const { raw } = await serve();
    for (const headers of ["content-type: application/json\r\ncontent-type: text/plain\r\n", ""]) {
      const client = raw();
      client.send(`POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n${headers}content-length: 2\r\n\r\n{}`);
      await client.until('"unsupported_media_type"');
      expect(client.text).toMatch(/^HTTP\/1.1 415 /);
    }
  });

  it.each([["gzip"], ["identity, zstd"]])("refuses content-encoding %s by name", async (encoding) => {
    const { ask } = await serve();
    const answer = await ask({ body: BODY, headers: { "content-encoding": encoding } });
    expect(answer.status).toBe(415);
    expect(errorOf(answer)).toMatchObject({
      error: { code: "unsupported_content_encoding", message: expect.stringContaining(encoding) },
    });
  });

  it.each([
    ['{"model":"m",\n "x" 1}', "invalid_json", /line 2/],
    ["", "invalid_json", /./],
    ["[]", "invalid_json", /./],
    ['{"model":"m"', "invalid_json", /./],
    ['{"model":"m","model":"n"}', "duplicate_key", /"model"/],
    ['{"model":"m","\\u006dodel":"n"}', "duplicate_key", /./],
    ['{"stream":true,"stream":false,"model":"m"}', "duplicate_key", /./],
    ['{"messages":[]}', "missing_model", /model/],
    ['{"model":""}', "missing_model", /model/],
    ['{"model":7}', "invalid_model", /./],
  ])("refuses %s as %s", async (body, code, message) => {
    const { ask, reported } = await serve();
    const answer = await ask({ body });
    expect(answer.status).toBe(400);
    expect(errorOf(answer)).toMatchObject({ error: { code, message: expect.stringMatching(message) } });
    expect(await reported(1)).toMatchObject([{ status: 400, code, outcome: "refused" }]);
  });

  it("bounds a body by its announced length and by what arrives, and names the limit", async () => {
    const { ask, edge } = await serve({ bodyBytes: 100 });
    const body = `{"model":"m","x":"${"x".repeat(100)}"}`;
    for (const headers of [{}, { "transfer-encoding": "chunked" }]) {
      const answer = await ask({ body, headers });
      expect(answer.status).toBe(413);
      expect(errorOf(answer)).toMatchObject({
        error: { code: "body_too_large", message: expect.stringMatching(/body_bytes, which is 100 bytes/) },
      });
    }
    expect(edge.submitted).toEqual([]);
  });

  it("bounds all bodies together until their providers answer", async () => {
    const { ask, edge } = await serve({ bufferedRequestBytes: 60 });
    const body = `{"model":"m","x":"${"x".repeat(20)}"}`;
    expect(body.length).toBe(40);
    const submitted = edge.next();
    const first = ask({ body });
    const { tunnel } = await submitted;
    for (const headers of [{}, { "transfer-encoding": "chunked" }]) {
      const refused = await ask({ body, headers, apart: true });
      expect([refused.status, refused.headers["retry-after"]]).toEqual([429, "1"]);
      expect(errorOf(refused)).toMatchObject({
        error: {
          code: "request_buffer_full",
          type: "rate_limit_error",
          message: expect.stringMatching(/buffered_request_bytes, which is 60 bytes/),
        },
      });
    }
    tunnel.start();
    const next = edge.next();
    const second = ask({ body, apart: true });
    for (const each of [tunnel, (await next).tunnel]) {
      if (each !== tunnel) each.start();
      each.end();
    }
    expect([(await first).status, (await second).status]).toEqual([200, 200]);
  });

  it("gives the bytes of refused and abandoned bodies back", async () => {
    const { ask, edge, raw, reported } = await serve({ bufferedRequestBytes: 60 });
    const body = `{"model":"m","x":"${"x".repeat(20)}"}`;
    const head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n";
    const cases = [
      { part: body.slice(0, 39), seen: "100 Continue", outcome: "client_closed" },
      { part: `!${body}`.slice(0, 40), seen: '"invalid_json"', outcome: "refused" },
    ];
    for (const [i, { part, seen, outcome }] of cases.entries()) {
      const client = raw();
      client.send(`${head}expect: 100-continue\r\ncontent-length: 40\r\n\r\n`);
      await client.until("100 Continue");
      client.send(part);
      await client.until(seen);
      await client.destroy();
      expect((await reported(i + 1))[i]).toMatchObject({ outcome });
    }
    edge.mode = "unavailable";
    for (const status of [503, 503, 503]) expect((await ask({ body })).status).toBe(status);
  });
});

describe("failures of the Edge and of the Node before the response starts", () => {
  it.each([
    ["unknown_model", 404, "model_not_found", undefined, undefined],
    ["unsupported_operation", 400, "unsupported_operation", undefined, undefined],
    ["unavailable", 503, "unavailable", "2", undefined],
    ["queue_full", 429, "queue_full", "1", undefined],
    ["queue_timeout", 429, "queue_timeout", "1", undefined],
    ["draining", 503, "draining", "2", undefined],
    ["cancelled", 502, "cancelled", undefined, "false"],
    ["internal", 500, "internal", undefined, "false"],
  ] as const)("%s of the submission: %i", async (mode, status, code, retryAfter, shouldRetry) => {
    const { ask, edge, reported } = await serve();
    edge.mode = mode;
    const answer = await ask({ body: BODY });
    expect(answer.status).toBe(status);
    expect(errorOf(answer)).toMatchObject({ error: { code } });
    expect(answer.headers["retry-after"]).toBe(retryAfter);
    expect(answer.headers["x-should-retry"]).toBe(shouldRetry);
    const [info] = await reported(1);
    expect(info).toMatchObject({
      status,
      code,
      model: "m",
      outcome: "refused",
      operation: "chat_completions",
    });
    expect(answer.headers["x-iop-request-id"]).toBe(info?.requestId);
  });

  it.each([
    ["provider_unreachable", 502, undefined],
    ["provider_unavailable", 503, undefined],
    ["capacity_exhausted", 429, undefined],
    ["first_byte_timeout", 504, "false"],
    ["provider_stream_cut", 502, "false"],
    ["node_lost", 502, "false"],
    ["invalid_request", 400, undefined],
    ["body_too_large", 413, undefined],
    ["internal", 500, "false"],
  ])("%s of the tunnel: %i", async (code, status, shouldRetry) => {
    const { ask, edge, reported } = await serve();
    const submitted = edge.next();
    const answering = ask({ body: BODY });
    (await submitted).tunnel.fail(code, "words of the Node");
    const answer = await answering;
    expect(answer.status).toBe(status);
    expect(errorOf(answer)).toMatchObject({
      error: { code, message: code === "internal" ? "Internal error." : "words of the Node" },
    });
    expect(answer.headers["x-should-retry"]).toBe(shouldRetry);
    expect(await reported(1)).toMatchObject([{ outcome: "refused", code, dispatch: { nodeId: "node-1" } }]);
  });

  it("says nothing of an unexpected fault", async () => {
    const { ask, edge } = await serve();
    edge.mode = new Error("secret detail");
    const answer = await ask({ body: BODY });
    expect(answer.status).toBe(500);
    expect(answer.body.toString()).not.toContain("secret");
  });
});
