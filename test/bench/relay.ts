// The least proxy that Node can do, one hop of it: `node:http` in front, undici behind, bodies piped.
// Usage: relay.ts PORT UPSTREAM_URL. Prints `ready {"http":URL}`.
import { createServer } from "node:http";
import { pipeline } from "node:stream";
import { Agent } from "undici";

const [port, upstream = ""] = process.argv.slice(2);
const agent = new Agent({ connections: null, pipelining: 1, headersTimeout: 0, bodyTimeout: 0 });

const server = createServer(
  { keepAliveTimeout: 75_000, requestTimeout: 0, noDelay: true },
  (request, response) => {
    const headers: string[] = [];
    for (let index = 0; index + 1 < request.rawHeaders.length; index += 2) {
      const name = request.rawHeaders[index] ?? "";
      if (!/^(?:connection|keep-alive|transfer-encoding|host)$/iu.test(name))
        headers.push(name, request.rawHeaders[index + 1] ?? "");
    }
    const abort = new AbortController();
    response.once("close", () => {
      if (!response.writableFinished) abort.abort();
    });
    agent
      .request({
        origin: upstream,
        path: request.url ?? "/",
        method: request.method === "GET" ? "GET" : "POST",
        headers,
        body: request.method === "GET" ? null : request,
        signal: abort.signal,
        responseHeaders: "raw",
      })
      .then(({ statusCode, headers: raw, body }) => {
        const kept: string[] = [];
        const all = Object.entries(raw);
        for (const [name, value] of all) {
          if (/^(?:connection|keep-alive|transfer-encoding)$/iu.test(name) || value === undefined) continue;
          for (const one of Array.isArray(value) ? value : [value]) kept.push(name, one);
        }
        response.writeHead(statusCode, kept);
        response.flushHeaders();
        pipeline(body, response, () => {});
      })
      .catch(() => response.destroy());
  },
);
server.listen(Number(port), "127.0.0.1", () => {
  const address = server.address();
  const bound = typeof address === "object" && address !== null ? address.port : port;
  process.stdout.write(`ready ${JSON.stringify({ http: `http://127.0.0.1:${bound}` })}\n`);
});
process.once("SIGTERM", () => process.exit(0));
