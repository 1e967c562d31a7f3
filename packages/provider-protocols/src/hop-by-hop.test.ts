import { expect, test } from "vitest";

import { connectionListed, isHopByHop } from "./hop-by-hop.ts";

test("a header that the connection lists stays on this hop, in any case", () => {
  const listed = connectionListed([
    ["Connection", "Keep-Alive, X-Secret"],
    ["x-secret", "1"],
    ["CONNECTION", "x-other"],
  ]);
  expect([...listed].toSorted()).toEqual(["keep-alive", "x-other", "x-secret"]);
  expect(isHopByHop("x-secret", listed)).toBe(true);
  expect(isHopByHop("x-kept", listed)).toBe(false);
});

test.each(["transfer-encoding", "te", "trailer", "upgrade", "proxy-authorization", "connection"])(
  "%s is never relayed",
  (name) => {
    expect(isHopByHop(name, connectionListed([["connection", "close"]]))).toBe(true);
  },
);
