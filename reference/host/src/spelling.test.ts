import { expect, it } from "vitest";
import { nearest } from "./spelling.ts";

it.each([
  ["nmae", "name"],
  ["Port", "port"],
  ["heartbeet", "heartbeat"],
  ["drain_timeout", undefined],
  ["id", undefined],
  ["x", undefined],
  ["queue", undefined],
])("takes %s for %s", (word, expected) => {
  expect(nearest(word, ["name", "port", "heartbeat", "drain_timeout_sec"])).toBe(expected);
});
