import { assert, constantFrom, oneof, property, string } from "fast-check";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { parseConfigDocument, readConfigDocument } from "./config-document.ts";
import { checkConfig } from "./config-file.ts";
import { ConfigError } from "./config-problem.ts";

const schema = z.strictObject({
  host: z.strictObject({ name: z.string().min(1), port: z.int().max(9).default(1) }),
  list: z.array(z.strictObject({ id: z.string() })).default([]),
  byKey: z.record(z.string(), z.boolean()).default({}),
});

function problems(text: string): string[] {
  try {
    checkConfig(parseConfigDocument("f.yaml", text), { schema, unsupported: ["host.later", "list.*.later"] });
    return [];
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return error.message.split("\n");
  }
}

describe("a configuration file", () => {
  it.each<[name: string, text: string, ...expected: string[]]>([
    ["is right", "host: { name: a }\n"],
    ["is JSON", '{ "host": { "name": "a" }, "byKey": { "x": true } }'],
    ["is empty", "", "f.yaml:1:1: (file): must be a mapping of keys to values, not empty"],
    ["is a list", "- a\n", "f.yaml:1:1: (file): must be a mapping of keys to values, not a list"],
    ["misses a key", "# c\nhost:\n  port: 2\n", "f.yaml:2:1: host.name: is missing"],
    ["has an empty value", "host:\n  name:\n", "f.yaml:2:8: host.name: must be text, not empty"],
    ["has the wrong kind", "host: { name: [] }\n", "f.yaml:1:9: host.name: must be text, not a list"],
    [
      "has a fraction",
      "host: { name: a, port: 1.5 }\n",
      "f.yaml:1:24: host.port: must be a whole number, not a fraction",
    ],
    ["is out of range", "host: { name: a, port: 10 }\n", "f.yaml:1:24: host.port: must be at most 9"],
    [
      "has an unknown key",
      "host: { name: a }\nzzzz: 1\n",
      "f.yaml:2:1: zzzz: unknown key; known here: host, list, byKey",
    ],
    [
      "has a key of another version",
      "host: { name: a, later: 1 }\nlist: [{ id: a, later: 1 }]\n",
      "f.yaml:1:18: host.later: is not supported by this version of IOP; remove it",
      "f.yaml:2:17: list[0].later: is not supported by this version of IOP; remove it",
    ],
    [
      "has a misspelled key in a list",
      "host: { name: a }\nlist:\n  - id: a\n  - ID: b\n",
      "f.yaml:4:5: list[1].id: is missing",
      'f.yaml:4:5: list[1].ID: unknown key; did you mean "id"?',
    ],
    [
      "has odd keys",
      'host: { name: a }\nbyKey: { "a.b": 1 }\n',
      'f.yaml:2:17: byKey["a.b"]: must be true or false, not a number',
    ],
    ["repeats a key", "host:\n  name: a\n  name: b\n", "f.yaml:3:3: host.name: is given more than once"],
    [
      "repeats a key and has a wrong one",
      "host: { name: a, name: b, x: 1 }\n",
      "f.yaml:1:18: host.name: is given more than once",
      "f.yaml:1:27: host.x: unknown key; known here: name, port",
    ],
    ["is broken", "host:\n  name: 'a\n", "f.yaml:3:1: host.name: is not valid YAML: Missing closing 'quote"],
    [
      "has two documents",
      "host: { name: a }\n---\nhost: {}\n",
      "f.yaml:2:1: host.name: is not valid YAML: Source contains multiple documents; please use YAML.parseAllDocuments()",
    ],
    [
      "has a strange tag",
      "host: { name: !x a }\n",
      "f.yaml:1:15: host.name: is not valid YAML: Unresolved tag: !x",
    ],
    ["has a lost alias", "host: *x\n", "f.yaml:1:7: (file): refers to an anchor that is not set before it"],
    ["has a dangerous key", "__proto__: {}\n", "f.yaml:1:1: (file): is not usable as a key"],
    [
      "has a wrong value behind an alias",
      "list: [&x { id: 1 }, *x]\nhost: { name: a }\n",
      "f.yaml:1:17: list[0].id: must be text, not a number",
      "f.yaml:1:17: list[1].id: must be text, not a number",
    ],
  ])("that %s", (_name, text, ...expected) => {
    expect(problems(text)).toEqual(expected);
  });

  it("does not expand aliases without end", () => {
    const levels = Array.from({ length: 9 }, (_, i) => `k${i + 1}: &k${i + 1} [${`*k${i},`.repeat(9)}]`);
    expect(problems(`k0: &k0 [x]\n${levels.join("\n")}\n`)).toEqual([
      "f.yaml:1:1: (file): repeats too much through aliases",
    ]);
  });

  it("that cannot be read", () => {
    expect(() => readConfigDocument("/nowhere/f.yaml")).toThrow(
      "/nowhere/f.yaml:1:1: (file): cannot be read (ENOENT)",
    );
  });

  it("never fails otherwise, whatever it holds", () => {
    const text = oneof(
      string(),
      string({ unit: constantFrom(...Array.from("host: {}[]&*!'\"|>-\n ,?#%@`\t")) }),
    );
    assert(
      property(text, (source) => void problems(source)),
      { numRuns: 500 },
    );
  });
});
