import { expect, test } from "vitest";

import type { NodeEvent } from "./event-bus.ts";
import { EventBus } from "./event-bus.ts";

const event: NodeEvent = { node: "n", type: "connected", at: "2026-12-01T00:00:00.000Z" };

function rejects(): unknown {
  return Promise.reject(new Error("mine, too"));
}

test("a subscriber that throws or rejects keeps nobody else from the event, nor the emitter", async () => {
  const bus = new EventBus();
  const seen: string[] = [];
  bus.on("node", () => {
    throw new Error("mine");
  });
  bus.on("node", rejects);
  bus.on("node", ({ node }) => void seen.push(node));
  bus.emit("node", event);
  bus.emit("node", event);
  // An unhandled rejection would fail this test.
  await new Promise((resolve) => {
    setImmediate(resolve);
  });
  expect(seen).toEqual(["n", "n"]);
});

test("a listener can leave, and be told once", () => {
  const bus = new EventBus();
  const seen: string[] = [];
  const stays = (): void => void seen.push("stays");
  const once = (): void => void seen.push("once");
  bus.on("node", stays).once("node", once);
  bus.emit("node", event);
  bus.emit("node", event);
  bus.off("node", stays);
  bus.emit("node", event);
  expect(seen).toEqual(["stays", "once", "stays"]);
});

test("a subscriber may subscribe and leave while it is told", () => {
  const bus = new EventBus();
  const seen: string[] = [];
  const first = (): void => {
    seen.push("first");
    bus.off("node", first);
    bus.on("node", () => void seen.push("later"));
  };
  bus.on("node", first);
  bus.on("node", () => void seen.push("second"));
  bus.emit("node", event);
  bus.emit("node", event);
  expect(seen).toEqual(["first", "second", "second", "later"]);
});
