import { expect, it } from "vitest";
import { hostPort, isLoopbackHost } from "./loopback.ts";

it.each([
  ["127.0.0.1", true],
  ["127.8.9.1", true],
  ["localhost", true],
  ["LOCALHOST", true],
  ["::1", true],
  ["[::1]", true],
  ["::ffff:127.0.0.1", true],
  ["0.0.0.0", false],
  ["::", false],
  ["128.0.0.1", false],
  ["127.0.0.1.example.com", false],
  ["127.1", false],
  ["localhost.example.com", false],
  ["::ffff:10.0.0.1", false],
])("%s is loopback: %s", (host, expected) => {
  expect(isLoopbackHost(host)).toBe(expected);
});

it("writes addresses as URLs do", () => {
  expect([hostPort("::1", 80), hostPort("h", 80)]).toEqual(["[::1]:80", "h:80"]);
});
