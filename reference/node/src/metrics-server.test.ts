import { once } from "node:events";
import { request } from "node:http";
import { type HttpListener, listenHttp } from "@iop/reference-host";
import { afterEach, expect, it } from "vitest";
import { type MetricsServerOptions, createMetricsServer } from "./metrics-server.ts";

let listener: HttpListener | undefined;
afterEach(() => listener?.close());

async function start(options: Partial<MetricsServerOptions> = {}): Promise<void> {
  const server = createMetricsServer({
    host: "127.0.0.1",
    connected: () => true,
    metrics: () => Promise.resolve({ contentType: "text/plain; version=0.0.4", text: "a 1\n" }),
    ...options,
  });
  listener = await listenHttp(server, { host: "127.0.0.1", port: 0 }, "node.metrics");
}

async function ask(
  path: string,
  { method = "GET", host }: { method?: string; host?: string } = {},
): Promise<[number, string]> {
  const headers = host === undefined ? {} : { host };
  const sent = request(`${listener?.url}${path}`, { method, headers, agent: false });
  sent.end();
  const [response] = await once(sent, "response", { signal: AbortSignal.timeout(5000) });
  let body = "";
  for await (const chunk of response) body += String(chunk);
  return [response.statusCode, body];
}

it("serves metrics and health, to GET and HEAD", async () => {
  await start();
  expect(await ask("/metrics")).toEqual([200, "a 1\n"]);
  expect(await ask("/metrics", { method: "HEAD" })).toEqual([200, ""]);
  expect(await ask("/healthz?x")).toEqual([200, '{"status":"ok","connected":true}\n']);
  expect((await ask("/metrics", { method: "POST" }))[0]).toBe(405);
  expect((await ask("/"))[0]).toBe(404);
});

it("on loopback knows no other name; elsewhere every one", async () => {
  await start();
  expect((await ask("/metrics", { host: "evil.example" }))[0]).toBe(403);
  expect((await ask("/metrics", { host: "localhost:1" }))[0]).toBe(200);
  await listener?.close();
  await start({ host: "0.0.0.0" });
  expect((await ask("/metrics", { host: "gpu-1.example" }))[0]).toBe(200);
});

it("hides why metrics fail", async () => {
  await start({ metrics: () => Promise.reject(new Error("s3cr3t")) });
  expect(await ask("/metrics")).toEqual([500, '{"error":"Internal error."}\n']);
});
