import { describe, expect, it } from "vitest";
import { ProviderRoutes } from "./provider-routes.ts";
import { codeOf, config, profile } from "./testing/loopback.ts";

function routes(endpoint: string, operations: Record<string, string> = profile.operations): ProviderRoutes {
  return new ProviderRoutes({ ...config(endpoint), profile: { ...profile, operations } });
}

describe("ProviderRoutes", () => {
  it("puts the operation's path below the endpoint's", () => {
    const at = routes("http://127.0.0.1:8000/llm/");
    expect(at.origin).toBe("http://127.0.0.1:8000");
    expect(at.operations).toEqual(["chat_completions", "models"]);
    expect(at.resolve({ operation: "chat_completions", method: "POST", path: "/ignored" })).toEqual({
      method: "POST",
      path: "/llm/v1/chat/completions",
    });
    expect(at.probe).toEqual({ method: "GET", path: "/llm/v1/models" });
    expect(routes("http://127.0.0.1:8000/llm", {}).probe.path).toBe("/llm/");
  });

  it("takes a path for an operation only where the profile lists that very path", async () => {
    const at = routes("http://127.0.0.1:8000");
    const resolve =
      (path: string): (() => unknown) =>
      () =>
        at.resolve({ operation: "", method: "POST", path });
    expect(resolve("/v1/chat/completions")()).toEqual({ method: "POST", path: "/v1/chat/completions" });
    for (const path of [
      "",
      "/v1/chat/completions/",
      "/v1/chat/completions?x=1",
      "/v1/../v1/chat/completions",
      "//evil/v1/chat/completions",
      "http://evil/v1/chat/completions",
      "/metrics",
    ])
      expect(await codeOf(resolve(path)), path).toBe("invalid_request");
  });

  it("holds an operation to its method", async () => {
    const at = routes("http://127.0.0.1:8000");
    const resolve =
      (operation: string, method: string): (() => unknown) =>
      () =>
        at.resolve({ operation, method, path: "" });
    expect(await codeOf(resolve("models", "GET"))).toBe("none");
    expect(await codeOf(resolve("models", "HEAD"))).toBe("none");
    expect(await codeOf(resolve("models", "POST"))).toBe("invalid_request");
    expect(await codeOf(resolve("models", "DELETE"))).toBe("invalid_request");
    expect(await codeOf(resolve("chat_completions", "GET"))).toBe("invalid_request");
    expect(await codeOf(resolve("chat_completions", "post"))).toBe("invalid_request");
    expect(await codeOf(resolve("responses", "POST"))).toBe("unsupported_operation");
    expect(await codeOf(resolve("constructor", "POST"))).toBe("unsupported_operation");
  });

  it.each([
    "127.0.0.1:8000",
    "ftp://127.0.0.1",
    "http://user:s3cret@127.0.0.1",
    "http://127.0.0.1/?a=b",
    "http://127.0.0.1/#a",
    "nonsense",
  ])("refuses the endpoint %s, without repeating it", async (endpoint) => {
    expect(await codeOf(() => routes(endpoint))).toBe("invalid_config");
    expect(() => routes(endpoint)).toThrow(/^endpoint: (?!.*s3cret)/);
  });

  it.each(["v1/x", "//host/x", "/a/../b", "/a b", "/a#b", "\\\\host", "/\\host", ""])(
    "refuses the path %j in a profile",
    async (path) => {
      expect(await codeOf(() => routes("http://127.0.0.1", { op: path }))).toBe("invalid_config");
    },
  );

  it("needs an endpoint and a profile", async () => {
    const { endpoint: _endpoint, ...noEndpoint } = config("http://127.0.0.1");
    const { profile: _profile, ...noProfile } = config("http://127.0.0.1");
    expect(await codeOf(() => new ProviderRoutes(noEndpoint))).toBe("invalid_config");
    expect(await codeOf(() => new ProviderRoutes(noProfile))).toBe("invalid_config");
  });
});
