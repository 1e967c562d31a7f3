import type { AuthScheme, ProviderConfig } from "@iop/agent-runtime";
import { describe, expect, it } from "vitest";
import { readCredential } from "./credential.ts";
import { codeOf, config, profile } from "./testing/loopback.ts";

function configOf(auth: AuthScheme | undefined, authEnv: string | undefined): ProviderConfig {
  const { auth: _auth, ...rest } = profile;
  return {
    ...config("http://127.0.0.1"),
    profile: { ...rest, ...(auth && { auth }) },
    ...(authEnv !== undefined && { authEnv }),
  };
}

const bearer: AuthScheme = { header: "Authorization", scheme: "Bearer" };
const holding = (value: string | undefined): { env: (name: string) => string | undefined } => ({
  env: (name) => (name === "KEY" ? value : undefined),
});

function read(auth: AuthScheme | undefined): () => unknown {
  return () => readCredential(configOf(auth, "KEY"), holding("sk"));
}

describe("readCredential", () => {
  it("presents the variable's value as the profile says", () => {
    expect(readCredential(configOf(bearer, "KEY"), holding("sk"))).toEqual({
      header: "authorization",
      value: "Bearer sk",
    });
    expect(readCredential(configOf({ header: "x-api-key" }, "KEY"), holding("sk"))).toEqual({
      header: "x-api-key",
      value: "sk",
    });
  });

  it("has none without a variable, whatever the profile says", () => {
    expect(readCredential(configOf(bearer, undefined), holding("sk"))).toBeUndefined();
  });

  it.each([undefined, "", " sk", "sk\n", "s\rk", "s\0k"])(
    "makes the provider unavailable where the variable holds %j, without showing it",
    async (value) => {
      const attempt = (): unknown => readCredential(configOf(bearer, "KEY"), holding(value));
      expect(await codeOf(attempt)).toBe("provider_unavailable");
      expect(attempt).toThrow(/^variable KEY (?!.*sk)/);
    },
  );

  it("refuses a profile that cannot present it", async () => {
    expect(await codeOf(read(undefined))).toBe("invalid_config");
    expect(await codeOf(read({ header: "x y" }))).toBe("invalid_config");
    expect(await codeOf(read({ header: "x", scheme: "a b" }))).toBe("invalid_config");
  });
});
