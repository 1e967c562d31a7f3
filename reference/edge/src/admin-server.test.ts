import { once } from "node:events";
import { request } from "node:http";
import { sha256Hex } from "@iop/reference-host";
import { afterEach, describe, expect, it } from "vitest";
import { createAdminServer } from "./admin-server.ts";
import { type HttpListener, listenHttp } from "./http-listener.ts";

let listener: HttpListener | undefined;
afterEach(() => listener?.close());

const snapshot = () => ({
  edge: { name: "edge-1", mode: "legacy" as const, uptime_sec: 1 },
  nodes: [],
  models: [],
  streams: 0,
});

async function start(keySha256?: string): Promise<void> {
  listener = await listenHttp(
    createAdminServer({ snapshot, keySha256 }),
    { host: "127.0.0.1", port: 0 },
    "edge.listen.admin",
  );
}

async function get(
  path: string,
  headers: Record<string, string> = {},
  method = "GET",
): Promise<[number, string]> {
  const sent = request(`${listener?.url}${path}`, {
    headers,
    method,
    agent: false,
    setHost: !("host" in headers),
  });
  sent.end();
  const [response] = await once(sent, "response", { signal: AbortSignal.timeout(5000) });
  let body = "";
  for await (const chunk of response) body += String(chunk);
  return [response.statusCode, body];
}

const bearer = (key: string) => ({ host: "anywhere", authorization: `Bearer ${key}` });

describe("the admin API", () => {
  it("serves health and the snapshot", async () => {
    await start();
    expect(await get("/healthz")).toEqual([200, '{"status":"ok"}\n']);
    const [status, body] = await get("/api/snapshot");
    expect([status, JSON.parse(body)]).toEqual([200, snapshot()]);
    expect((await get("/nothing"))[0]).toBe(404);
    expect((await get("/api/snapshot", {}, "POST"))[0]).toBe(405);
    expect(await get("/api/snapshot", {}, "HEAD")).toEqual([200, ""]);
  });

  it.each([
    [{ host: "evil.example" }],
    [{ host: "127.0.0.1.evil.example:80" }],
    [{ host: "" }],
    [{ host: "127.0.0.1", origin: "https://127.0.0.1.evil.example" }],
    [{ origin: "http://evil.example" }],
    [{ origin: "null" }],
    [{ origin: "http://localhost:1" }],
  ])("refuses a page of elsewhere: %o", async (headers) => {
    await start();
    expect((await get("/api/snapshot", headers))[0]).toBe(403);
  });

  it("answers to any loopback name", async () => {
    await start();
    for (const host of ["localhost:1", "[::1]:2", "127.0.0.1"])
      expect((await get("/api/snapshot", { host }))[0]).toBe(200);
  });

  it("demands its key, except for health", async () => {
    await start(sha256Hex("k"));
    expect((await get("/healthz"))[0]).toBe(200);
    expect((await get("/api/snapshot"))[0]).toBe(401);
    expect((await get("/api/snapshot", bearer("x")))[0]).toBe(401);
    expect((await get("/api/snapshot", bearer("k")))[0]).toBe(200);
  });
});
