import { once } from "node:events";
import { type RequestListener, type Server, createServer } from "node:http";
import { afterEach, expect, it } from "vitest";
import { findProvider } from "./find-provider.ts";

const servers: Server[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) {
    server.close();
    server.closeAllConnections();
  }
});

async function serve(listener: RequestListener): Promise<number> {
  const server = createServer(listener).listen(0, "127.0.0.1");
  servers.push(server);
  await once(server, "listening");
  const address = server.address();
  return typeof address === "object" && address !== null ? address.port : 0;
}

const models =
  (...ids: unknown[]): RequestListener =>
  (_request, response) =>
    response.end(JSON.stringify({ data: ids.map((id) => ({ id })) }));

it("takes the first in order that lists a model", async () => {
  const ports = [await serve(models()), await serve(models("a", 1, "", "b")), await serve(models("c"))];
  const found = await findProvider(ports.map((port, index) => ({ name: `s${index}`, port })));
  expect(found).toEqual({ name: "s1", url: `http://127.0.0.1:${ports[1]}`, models: ["a", "b"] });
});

it("passes over what is no model server, refuses, or does not answer in time", async () => {
  const ports = [
    await serve((_request, response) => response.end("<html>")),
    await serve((_request, response) => response.writeHead(401).end('{"data":[{"id":"x"}]}')),
    await serve((_request, response) => response.writeHead(302, { location: "/v1/models" }).end()),
    await serve((_request, response) => response.end('{"data":{"id":"x"}}')),
    await serve(() => {}),
    // Nobody listens there.
    1,
  ];
  expect(await findProvider(ports.map((port) => ({ name: "s", port })))).toBeUndefined();
});
