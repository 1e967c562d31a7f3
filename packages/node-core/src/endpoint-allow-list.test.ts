import * as fc from "fast-check";
import { expect, test } from "vitest";

import { EndpointAllowList } from "./endpoint-allow-list.ts";

test.each([
  ["http://127.0.0.1:*", "http://127.0.0.1:8000", true],
  ["http://127.0.0.1:*", "http://127.0.0.1", true],
  ["http://127.0.0.1:*", "http://127.0.0.1:8000/v1/", true],
  // The URL parser's other spellings of the same address.
  ["http://127.0.0.1:*", "http://127.1:8000", true],
  ["http://127.0.0.1:*", "https://127.0.0.1:8000", false],
  ["http://127.0.0.1:*", "http://127.0.0.1:80@evil.test/", false],
  ["http://127.0.0.1:*", "http://127.0.0.1.evil.test/", false],
  ["http://127.0.0.1:*", "http://user:pw@127.0.0.1:8000", false],
  ["http://127.0.0.1:*", "http://127.0.0.1\\@evil.test", true],
  ["http://127.0.0.1:*", "http://evil.test#@127.0.0.1", false],
  ["http://127.0.0.1:*", "file:///etc/passwd", false],
  ["http://127.0.0.1:*", "127.0.0.1:8000", false],
  ["http://LOCALHOST:8000/", "http://localhost:8000", true],
  ["http://localhost:8000", "http://localhost:8001", false],
  ["http://localhost", "http://localhost:80", true],
  ["http://localhost", "http://localhost:8000", false],
  ["https://api.test", "https://api.test:443/v1", true],
  ["https://api.test", "https://api.test.:443/v1", false],
  ["http://[::1]:*", "http://[0:0:0:0:0:0:0:1]:8000", true],
  ["http://*:*", "http://anything.test:1", true],
  ["http://*:8000", "http://anything.test:8001", false],
])("%s and %s: %s", (pattern, endpoint, allowed) => {
  expect(new EndpointAllowList([pattern]).allows(endpoint)).toBe(allowed);
});

test.each([
  "",
  "127.0.0.1",
  "http://",
  "ftp://x",
  "http://x/v1",
  "http://x:y",
  "http://u@x",
  "http://x:99999",
  "http://a:1:2",
])("%j is no pattern", (pattern) => {
  expect(() => new EndpointAllowList([pattern])).toThrow("allow.endpoints");
});

test("nothing is allowed but origins that were listed, whatever the endpoint looks like", () => {
  const list = new EndpointAllowList(["http://127.0.0.1:*"]);
  fc.assert(
    fc.property(
      fc.oneof(
        fc.webUrl(),
        fc.string().map((tail) => `http://127.0.0.1${tail}`),
      ),
      (endpoint) => {
        if (!list.allows(endpoint)) return;
        const url = new URL(endpoint);
        expect([url.protocol, url.hostname, url.username]).toEqual(["http:", "127.0.0.1", ""]);
      },
    ),
    { numRuns: 2_000 },
  );
});
