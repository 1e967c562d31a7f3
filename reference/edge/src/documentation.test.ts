import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { z } from "zod";
import { edgeSchema } from "./edge-schema.ts";

const documentation = readFileSync(new URL("../../../docs/configuration.md", import.meta.url), "utf8");

/** All keys of a JSON Schema, however deep. */
function keysOf(schema: unknown): string[] {
  if (typeof schema !== "object" || schema === null) return [];
  return Object.entries(schema).flatMap(([name, value]) =>
    name === "properties" && typeof value === "object" && value !== null
      ? Object.entries(value).flatMap(([key, inner]) => [key, ...keysOf(inner)])
      : keysOf(value),
  );
}

it("describes every key of edge.yaml", () => {
  const keys = new Set(keysOf(z.toJSONSchema(edgeSchema, { unrepresentable: "any" })));
  expect(keys.size).toBeGreaterThan(40);
  expect([...keys].filter((key) => !new RegExp(`\\b${key}\\b`).test(documentation))).toEqual([]);
});
