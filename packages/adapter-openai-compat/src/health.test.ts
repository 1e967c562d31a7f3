import { describe, expect, it } from "vitest";
import { answering, httpServer, profile, providerAt, tcpServer } from "./testing/loopback.ts";

describe("health", () => {
  it("asks for the models with the provider's credential", async () => {
    const seen: unknown[] = [];
    const { origin } = await httpServer((request, response) => {
      seen.push([request.method, request.url, request.headers["x-api-key"]]);
      response.end("{}");
    });
    const provider = providerAt(
      origin,
      { authEnv: "KEY", profile: { ...profile, auth: { header: "x-api-key" } } },
      { env: () => "sk" },
    );
    expect(await provider.health()).toBe("ok");
    expect(seen).toEqual([["GET", "/v1/models", "sk"]]);
  });

  it("asks the endpoint itself where no models are listed", async () => {
    let url: string | undefined;
    const { origin } = await httpServer((request, response) => {
      ({ url } = request);
      response.end("{}");
    });
    const provider = providerAt(`${origin}/llm`, { profile: { ...profile, operations: {} } });
    expect(await provider.health()).toBe("ok");
    expect(url).toBe("/llm/");
  });

  it.each([
    [200, "ok"],
    [307, "ok"],
    [401, "degraded: GET /v1/models answered 401: the key is refused"],
    [403, "degraded: GET /v1/models answered 403: the key is refused"],
    [404, "degraded: GET /v1/models answered 404: an error"],
    [503, "degraded: GET /v1/models answered 503: an error"],
  ])("with status %i is %s", async (status, health) => {
    const { origin } = await httpServer((_request, response) => response.writeHead(status).end("{}"));
    expect(await providerAt(origin).health()).toBe(health);
  });

  it("is offline without a connection", async () => {
    const { origin, server } = await tcpServer(() => {});
    await new Promise((resolve) => {
      server.close(resolve);
    });
    expect(await providerAt(origin).health()).toBe("offline: cannot connect to the provider (ECONNREFUSED)");
  });

  it("is degraded where the server breaks off", async () => {
    const { origin } = await answering((socket) => socket.destroy());
    expect(await providerAt(origin).health()).toMatch(/^degraded: the provider did not answer/);
  });

  it("is degraded where the answer has not come when the signal fires, and closes the connection", async () => {
    const deadline = new AbortController();
    const closed = Promise.withResolvers<void>();
    const { origin } = await answering((socket) => {
      socket.once("close", () => closed.resolve());
      deadline.abort();
    });
    expect(await providerAt(origin).health(deadline.signal)).toBe("degraded: no answer in time");
    await closed.promise;
  });

  it("is degraded where only a part of the answer has come by then", async () => {
    const deadline = new AbortController();
    const { origin } = await httpServer((_request, response) => {
      response.write("{", () => setImmediate(() => deadline.abort()));
    });
    expect(await providerAt(origin).health(deadline.signal)).toBe("degraded: no answer in time");
  });

  it("is offline where the connection is not there when the signal fires", async () => {
    const deadline = new AbortController();
    const { origin } = await tcpServer((socket) => socket.once("data", () => deadline.abort()));
    const provider = providerAt(origin.replace("http:", "https:"));
    expect(await provider.health(deadline.signal)).toBe("offline: no answer in time");
  });

  it("does not read an endless answer", async () => {
    const { origin } = await httpServer((_request, response) => {
      const more = (): void => {
        while (response.write(Buffer.alloc(64 * 1024)));
        response.once("drain", more);
      };
      more();
    });
    expect(await providerAt(origin).health()).toBe("ok");
  });
});
