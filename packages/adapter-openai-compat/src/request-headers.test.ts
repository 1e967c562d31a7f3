import { describe, expect, it } from "vitest";
import { toProviderHeaders } from "./request-headers.ts";
import { codeOf } from "./testing/loopback.ts";

describe("toProviderHeaders", () => {
  it("keeps end-to-end headers in order, with case and repeats, and adds only the credential", () => {
    const headers = toProviderHeaders(
      [
        ["Content-Type", "application/json"],
        ["X-Tag", "1"],
        ["accept", "*/*"],
        ["x-tag", "2"],
        ["X-Empty", ""],
      ],
      { header: "authorization", value: "Bearer key" },
    );
    expect(headers).toEqual(
      ["Content-Type", "application/json", "X-Tag", "1", "accept", "*/*", "x-tag", "2", "X-Empty", ""].concat(
        ["authorization", "Bearer key"],
      ),
    );
  });

  it("strips what is for one hop, what connection lists, and what belongs to the caller", () => {
    const stripped = [
      ["Connection", "keep-alive, X-Secret"],
      ["connection", "x-other"],
      ["x-secret", "s"],
      ["X-Other", "o"],
      ["Keep-Alive", "timeout=5"],
      ["Proxy-Connection", "keep-alive"],
      ["Proxy-Authorization", "Basic x"],
      ["Proxy-Authenticate", "Basic"],
      ["TE", "trailers"],
      ["Trailer", "x-sum"],
      ["Transfer-Encoding", "chunked"],
      ["Upgrade", "h2c"],
      ["Host", "edge.example"],
      ["Content-Length", "9"],
      ["Expect", "100-continue"],
      ["Authorization", "Bearer caller"],
      ["X-Api-Key", "caller"],
      ["Api-Key", "caller"],
      ["Cookie", "a=b"],
      ["X-Vendor-Key", "caller"],
    ] as const;
    const credential = { header: "x-vendor-key", value: "ours" };
    expect(toProviderHeaders([...stripped, ["x-kept", "1"]], credential)).toEqual(
      ["x-kept", "1"].concat(["x-vendor-key", "ours"]),
    );
  });

  it.each([
    ["x-a", "b\r\nx-evil: 1"],
    ["x-a", "b\nc"],
    ["x-a", "b\0"],
    ["x-a", "\u{2713}"],
    ["x-a\r\nx-evil", "b"],
    ["x a", "b"],
    ["", "b"],
  ])("refuses %j: %j", async (name, value) => {
    expect(await codeOf(() => toProviderHeaders([[name, value]], undefined))).toBe("invalid_request");
  });

  it("does not repeat a bad value in the message", () => {
    expect(() => toProviderHeaders([["x-a", "secret\n"]], undefined)).toThrow(/^(?!.*secret)/);
  });
});
