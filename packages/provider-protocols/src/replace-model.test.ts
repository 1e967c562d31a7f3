import * as fc from "fast-check";
import { expect, test } from "vitest";
import { replaceModel } from "./replace-model.ts";
import { createRequestScanner } from "./request-scanner.ts";
import { bytesOf, concat, cut, places, singles } from "./testing/chunkings.ts";

function modelOf(chunks: readonly Uint8Array[]): { offset: number; length: number; value: string } {
  const scanner = createRequestScanner();
  for (const chunk of chunks) scanner.push(chunk);
  const { model } = scanner.end();
  if (model === undefined) throw new Error("no model");
  return model;
}

const text = (chunks: readonly Uint8Array[]): string => new TextDecoder().decode(concat(chunks));

test("replaces the value and hands on the rest as it is", () => {
  const chunks = ['{"a":1.0e5,', '"model" : "al', 'ias", "z":', "[ ]}"].map(bytesOf);
  const replaced = replaceModel(chunks, modelOf(chunks), 'qwen"3');
  expect(text(replaced)).toBe('{"a":1.0e5,"model" : "qwen\\"3", "z":[ ]}');
  expect(replaced[0]).toBe(chunks[0]);
  expect(replaced.at(-1)).toBe(chunks.at(-1));
  expect(replaced[1]?.buffer).toBe(chunks[1]?.buffer);
  expect(text(chunks)).toBe('{"a":1.0e5,"model" : "alias", "z":[ ]}');
});

test("one chunk for each byte", () => {
  const chunks = singles(bytesOf('{"model":"m","n":1}'));
  expect(text(replaceModel(chunks, modelOf(chunks), "x"))).toBe('{"model":"x","n":1}');
});

test("the same name in the same spelling returns the chunks", () => {
  const chunks = ['{"model":"a', 'b"}'].map(bytesOf);
  expect(replaceModel(chunks, modelOf(chunks), "ab")).toBe(chunks);
  const escaped = [bytesOf('{"model":"\\u0061b"}')];
  expect(text(replaceModel(escaped, modelOf(escaped), "ab"))).toBe('{"model":"ab"}');
});

test.each([
  [-1, 3],
  [3, 0],
  [10, 5],
])("a range outside the body is refused: offset %d, length %d", (offset, length) => {
  expect(() => replaceModel([bytesOf('{"model":"m"}')], { offset, length }, "x")).toThrow(
    "The range lies outside the body",
  );
});

test("only the model changes, whatever the body, the names and the chunks are", () => {
  const rest = fc.dictionary(fc.string({ unit: "binary" }), fc.jsonValue({ maxDepth: 2 }), { maxKeys: 4 });
  const name = fc.string({ unit: "binary", maxLength: 60 });
  fc.assert(
    fc.property(rest, rest, name, name, places, (before, after, model, target, cuts) => {
      const first = JSON.stringify(before).slice(0, -1);
      const last = JSON.stringify(after).slice(1);
      const head = bytesOf(`${first}${first.length > 1 ? "," : ""} "model":`);
      const tail = bytesOf(` ${last.length > 1 ? "," : ""}${last}`);
      const spelled = bytesOf(JSON.stringify(model));
      const whole = concat([head, spelled, tail]);
      const range = { offset: head.length, length: spelled.length };
      const replaced = concat(replaceModel(cut(whole, cuts), range, target));
      expect(replaced).toEqual(concat([head, bytesOf(JSON.stringify(target)), tail]));
      expect(JSON.parse(new TextDecoder().decode(replaced))).toEqual({
        ...JSON.parse(new TextDecoder().decode(whole)),
        model: target,
      });
    }),
    { numRuns: 500 },
  );
});
