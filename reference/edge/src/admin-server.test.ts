import { type HttpListener, listenHttp, sha256Hex } from "@iop/reference-host";
import { EventEmitter, once } from "node:events";
import { request } from "node:http";
import { afterEach, expect, it } from "vitest";
import { createAdminServer } from "./admin-server.ts";

let listener: HttpListener | undefined;
afterEach(() => listener?.close());

async function start(host: string, keySha256?: string): Promise<void> {
  const events = new EventEmitter();
  const server = createAdminServer({
    host,
    keySha256,
    edge: {
      events,
      models: () => [],
      snapshot: () => ({
        edge: { name: "e", mode: "legacy", uptime_sec: 1, config_revision: 1 },
        nodes: [],
        models: [],
        streams: 0,
        totals: { relayed_bytes: { request: 0, response: 0 }, unknown_messages: 0, late_messages: 0 },
      }),
    },
  });
  listener = await listenHttp(server, { host: "127.0.0.1", port: 0 }, "edge.listen.admin");
}

async function status(host: string, headers: Record<string, string> = {}): Promise<number> {
  const sent = request(`${listener?.url}/api/snapshot`, { headers: { ...headers, host }, agent: false });
  sent.end();
  const [response] = await once(sent, "response", { signal: AbortSignal.timeout(5000) });
  response.resume();
  return response.statusCode;
}

it("is known by loopback's names and by where it listens", async () => {
  await start("127.0.0.2");
  for (const host of ["localhost:1", "127.0.0.1", "[::1]:2", "127.0.0.2:3"])
    expect(await status(host)).toBe(200);
  expect(await status("evil.example")).toBe(403);
});

it("is known by every name to whoever has its key", async () => {
  await start("0.0.0.0", sha256Hex("k"));
  expect(await status("edge.example")).toBe(401);
  expect(await status("edge.example", { authorization: "Bearer k" })).toBe(200);
});
