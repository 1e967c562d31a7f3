import { describe, expect, it } from "vitest";
import { askHealth } from "./health.ts";
import { ProviderConnections } from "./provider-connections.ts";
import { answering, codeOf, httpServer, profile, providerAt, tcpServer } from "./testing/loopback.ts";

async function ask(origin: string): Promise<unknown> {
  const connections = new ProviderConnections({ origin });
  const route = { method: "GET", path: "/" } as const;
  const { signal } = new AbortController();
  const answer = await askHealth({ connections, route, headers: [], signal, deadlineMs: 30 });
  await connections.close();
  return answer;
}

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

  it("is degraded where the answer is late, and offline where the connection is", async () => {
    const { origin } = await tcpServer((socket) => socket.resume());
    const reason = "no answer within 30 ms";
    expect(await ask(origin)).toEqual({ health: "degraded", reason });
    expect(await ask(origin.replace("http:", "https:"))).toEqual({ health: "offline", reason });
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

  it("can be cancelled", async () => {
    const asked = Promise.withResolvers<void>();
    const { origin } = await answering(() => asked.resolve());
    const abort = new AbortController();
    const code = codeOf(providerAt(origin).health(abort.signal));
    await asked.promise;
    abort.abort();
    expect(await code).toBe("cancelled");
  });
});
