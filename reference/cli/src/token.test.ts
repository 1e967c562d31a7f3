import { createHash } from "node:crypto";
import { describe, expect, it } from "vitest";
import { createToken, describeToken } from "./token.ts";

describe("tokens", () => {
  it("are random, of 32 bytes, and say what they are", () => {
    const tokens = Array.from({ length: 100 }, () => createToken("node"));
    expect(new Set(tokens).size).toBe(100);
    for (const token of tokens) expect(token).toMatch(/^iop_node_[\w-]{43}$/);
    expect(createToken("key")).toMatch(/^iop_key_/);
  });

  it("are described by the digest that an Edge compares", () => {
    const token = createToken("node");
    const text = describeToken("node", "gpu-1", token);
    const digest = createHash("sha256").update(token).digest("hex");
    expect(text).toContain(`token: { sha256: "${digest}" }`);
    expect(text.split(token)).toHaveLength(2);
    expect(text).toContain(`export GPU_1_TOKEN=${token}\n`);
  });
});
