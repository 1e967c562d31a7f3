import { expect, test } from "vitest";

import { Affinity } from "./affinity.ts";

const served = (providerId: string): { nodeId: string; providerId: string } => ({ nodeId: "n", providerId });

test("a session is where it was served last", () => {
  const affinity = new Affinity();
  expect(affinity.recall("alice", "s")).toBeUndefined();
  affinity.remember("alice", "s", served("p1"));
  affinity.remember("alice", "s", served("p2"));
  expect(affinity.recall("alice", "s")).toEqual(served("p2"));
});

test("nobody has another's sessions, however the names are put together", () => {
  const affinity = new Affinity();
  affinity.remember("alice", "s", served("p1"));
  affinity.remember(undefined, "t", served("p2"));
  affinity.remember('a","b', "c", served("p3"));
  for (const [principal, session] of [
    ["bob", "s"],
    [undefined, "s"],
    ["", "t"],
    ["null", "t"],
    ["a", 'b","c'],
  ] as const)
    expect(affinity.recall(principal, session)).toBeUndefined();
});

test("of more than 10,000 sessions the one that was used longest ago is forgotten", () => {
  const affinity = new Affinity();
  for (let count = 0; count < 10_000; count++) affinity.remember("a", String(count), served("p"));
  affinity.remember("a", "0", served("p"));
  affinity.remember("a", "new", served("p"));
  expect(affinity.recall("a", "0")).toEqual(served("p"));
  expect(affinity.recall("a", "1")).toBeUndefined();
  expect(affinity.recall("a", "2")).toEqual(served("p"));
});
