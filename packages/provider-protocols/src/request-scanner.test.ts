import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { ProtocolError } from "./protocol-error.ts";
import type { RequestScan, RequestScannerOptions } from "./request-scan.ts";
import { createRequestScanner } from "./request-scanner.ts";
import { bytesOf, concat, cut, places, singles } from "./testing/chunkings.ts";

function scan(chunks: readonly Uint8Array[], options?: RequestScannerOptions): RequestScan {
  const scanner = createRequestScanner(options);
  for (const chunk of chunks) scanner.push(chunk);
  return scanner.end();
}

function attempt(
  chunks: readonly Uint8Array[],
  options?: RequestScannerOptions,
): RequestScan | ProtocolError {
  try {
    return scan(chunks, options);
  } catch (error) {
    if (error instanceof ProtocolError) return error;
    throw error;
  }
}

function failure(chunks: readonly Uint8Array[]): ProtocolError {
  const found = attempt(chunks);
  if (!(found instanceof ProtocolError)) throw new Error("the body was accepted");
  return found;
}

/** Everything that a caller can see of a scan, as plain data. */
function outcome(chunks: readonly Uint8Array[], options?: RequestScannerOptions): unknown {
  const found = attempt(chunks, options);
  if (found instanceof ProtocolError) {
    return { code: found.code, message: found.message, position: found.position, key: found.key };
  }
  return { ...found, values: [...found.values] };
}

function slice(text: string, range: { offset: number; length: number } | undefined): string | undefined {
  if (range === undefined) return undefined;
  return new TextDecoder().decode(bytesOf(text).subarray(range.offset, range.offset + range.length));
}

/** Objects inside each other, `levels` in all. */
function nested(levels: number): string {
  return `${'{"a":'.repeat(levels - 1)}{}${"}".repeat(levels - 1)}`;
}

/** What JSON.parse makes of the bytes: the members of an object, or undefined for anything else. */
function membersOf(bytes: Uint8Array): Map<string, unknown> | undefined {
  try {
    const parsed: unknown = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
    const isObject = typeof parsed === "object" && parsed !== null && !Array.isArray(parsed);
    return isObject ? new Map(Object.entries(parsed)) : undefined;
  } catch {
    return undefined;
  }
}

function valuesOf(found: RequestScan | ProtocolError): Map<string, unknown> {
  const values = found instanceof ProtocolError ? [] : [...found.values];
  return new Map(values.map(([key, { json }]) => [key, json === undefined ? undefined : JSON.parse(json)]));
}

describe("what it finds", () => {
  test("model and stream, with their ranges", () => {
    const text = '{ "messages": [{"model":"inner","stream":1}], "model" : "qwen3" ,"stream":true}\n';
    const found = scan([bytesOf(text)]);
    expect(found.model?.value).toBe("qwen3");
    expect(slice(text, found.model)).toBe('"qwen3"');
    expect(found.stream?.value).toBe(true);
    expect(slice(text, found.stream)).toBe("true");
    expect(found.byteLength).toBe(text.length);
  });

  test("a value and a key spelled with escapes, after text of several bytes a character", () => {
    const text = String.raw`{"user":"北京 Größe 🙂 \ud83d\ude42","mod\u0065l":"a\/b\u00e9","str\u0065am":false}`;
    const found = scan([bytesOf(text)]);
    expect(found.model?.value).toBe("a/bé");
    expect(slice(text, found.model)).toBe(String.raw`"a\/b\u00e9"`);
    expect(found.stream?.value).toBe(false);
  });

  test("keys that the caller asks for, of every type", () => {
    const text =
      '{"a":1.5e3,"b":"x","c":{"a":[1,{}]},"d":[],"e":null,"f":false,"g":{},"schlüssel":-0,"other":1,"h":[[1]]}';
    const keys = ["a", "b", "c", "d", "e", "f", "g", "h", "schlüssel", "absent"];
    const { values, model, stream } = scan([bytesOf(text)], { keys });
    expect([...values].map(([key, value]) => [key, value.type, value.json])).toEqual([
      ["a", "number", "1.5e3"],
      ["b", "string", '"x"'],
      ["c", "object", '{"a":[1,{}]}'],
      ["d", "array", "[]"],
      ["e", "null", "null"],
      ["f", "boolean", "false"],
      ["g", "object", "{}"],
      ["schlüssel", "number", "-0"],
      ["h", "array", "[[1]]"],
    ]);
    for (const value of values.values()) expect(slice(text, value)).toBe(value.json);
    expect([model, stream]).toEqual([undefined, undefined]);
  });

  test("only the range of a long value", () => {
    const text = `{"user":"${"u".repeat(2000)}","metadata":${"[".repeat(20)}1${"]".repeat(20)}}`;
    const { values } = scan([bytesOf(text)], { keys: ["user", "metadata"], maxValueBytes: 41 });
    expect(values.get("user")).toEqual({ offset: 8, length: 2002, type: "string", json: undefined });
    expect(values.get("metadata")?.json).toBe(`${"[".repeat(20)}1${"]".repeat(20)}`);
  });

  test("stream: null is no stream", () => {
    const found = scan([bytesOf('{"stream":null}')]);
    expect(found.stream).toBeUndefined();
    expect(found.values.get("stream")?.type).toBe("null");
  });

  test("a byte order mark counts in offsets", () => {
    const found = scan([new Uint8Array([0xef, 0xbb]), new Uint8Array([0xbf]), bytesOf('{"model":"m"}')]);
    expect(found.model).toEqual({ offset: 12, length: 3, value: "m" });
  });

  test("a chunk may be reused after push", () => {
    const scanner = createRequestScanner();
    const buffer = new Uint8Array(1);
    for (const byte of bytesOf('{"model":"abc","stream":false}')) {
      buffer[0] = byte;
      scanner.push(buffer);
    }
    expect(scanner.end().model?.value).toBe("abc");
  });
});

describe("what it refuses", () => {
  test.each([
    ["", "truncated", 0],
    [" \n", "truncated", 2],
    ["{", "truncated", 1],
    ['{"model":"m"', "truncated", 12],
    ['{"model":"m', "truncated", 11],
    ['{"a":12', "truncated", 7],
    ['{"a":tru', "truncated", 8],
    ["[1]", "not_an_object", 0],
    [' "x"', "not_an_object", 1],
    ["null", "not_an_object", 0],
    ["hello", "invalid_json", 0],
    ["{}x", "invalid_json", 2],
    ["{}{}", "invalid_json", 2],
    ["{,}", "invalid_json", 1],
    ['{"a":1,}', "invalid_json", 7],
    ['{"a":[1,]}', "invalid_json", 8],
    ['{"a":[1}', "invalid_json", 7],
    ['{"a":[1]]', "invalid_json", 8],
    ['{"a" 1}', "invalid_json", 5],
    ["{'a':1}", "invalid_json", 1],
    ["{a:1}", "invalid_json", 1],
    ['{"a":01}', "invalid_json", 6],
    ['{"a":-}', "invalid_json", 6],
    ['{"a":1.}', "invalid_json", 7],
    ['{"a":.5}', "invalid_json", 5],
    ['{"a":+1}', "invalid_json", 5],
    ['{"a":1e}', "invalid_json", 7],
    ['{"a":NaN}', "invalid_json", 5],
    ['{"a":trux}', "invalid_json", 8],
    ['{"a":"\n"}', "invalid_json", 6],
    ['{"a":"\\x"}', "invalid_json", 7],
    ['{"a":"\\u12g4"}', "invalid_json", 10],
    ['{"a":1}/**/', "invalid_json", 7],
    ['{"a":1}\u00a0', "invalid_json", 7],
    ['\ufeff\ufeff{"a":1}', "invalid_json", 3],
    ['{"model":"a","model":"a"}', "duplicate_key", 13],
    ['{"model":"a","mod\\u0065l":"b"}', "duplicate_key", 13],
    ['{"model":"a","Model":"b"}', "duplicate_key", 13],
    ['{"MODEL":"b","model":"a"}', "duplicate_key", 13],
    ['{"stream":true,"\u017ftream":false}', "duplicate_key", 15],
    ['{"model":null}', "wrong_type", 9],
    ['{"model":["m"]}', "wrong_type", 9],
    ['{"stream":"true"}', "wrong_type", 10],
    ['{"stream":1}', "wrong_type", 10],
  ])("%j", (text, code, offset) => {
    const error = failure([bytesOf(text)]);
    expect([error.code, error.position?.offset]).toEqual([code, offset]);
    expect(outcome(singles(bytesOf(text)))).toEqual(outcome([bytesOf(text)]));
  });

  test.each([
    ["a model name over 1024 bytes", `{"model":"${"m".repeat(1023)}"}`, "value_too_large", 9],
    ["nesting over 256", nested(257), "too_deep", 1280],
  ])("%s", (_, text, code, offset) => {
    const error = failure([bytesOf(text)]);
    expect([error.code, error.position?.offset]).toEqual([code, offset]);
    expect(outcome(singles(bytesOf(text)))).toEqual(outcome([bytesOf(text)]));
  });

  test("but takes what is just within the bounds", () => {
    scan([bytesOf(nested(256))]);
    expect(scan([bytesOf(`{"model":"${"m".repeat(1022)}"}`)]).model?.value).toHaveLength(1022);
    scan([bytesOf('{"a":1,"a":2,"b":{"model":1,"model":2},"model":"m","modèl":1,"mode":2,"models":3}')]);
  });

  test.each([
    ["lone continuation", [0x80]],
    ["overlong, two bytes", [0xc0, 0xaf]],
    ["overlong, three bytes", [0xe0, 0x9f, 0xbf]],
    ["surrogate", [0xed, 0xa0, 0x80]],
    ["overlong, four bytes", [0xf0, 0x8f, 0xbf, 0xbf]],
    ["over U+10FFFF", [0xf4, 0x90, 0x80, 0x80]],
    ["no lead byte", [0xff]],
    ["cut short", [0xe5, 0x8c]],
  ])("bytes that are not UTF-8: %s", (_, bad) => {
    const body = concat([bytesOf('{"a":"é北🙂'), new Uint8Array(bad), bytesOf('"}')]);
    expect(failure([body]).code).toBe("invalid_utf8");
    expect(outcome(singles(body))).toEqual(outcome([body]));
  });

  test("with line and column, and without content", () => {
    const error = failure([bytesOf('{\r\n  "model": "m",\n  "secret": "x" 5}')]);
    expect(error.position).toEqual({ offset: 35, line: 3, column: 17 });
    expect(error.message).toBe("The body is not valid JSON: line 3, column 17 (byte 35)");
    const duplicate = failure([bytesOf('{"model": "secret",\n "model": "other"}')]);
    expect(duplicate.key).toBe("model");
    expect(duplicate.message).toBe('The key "model" is repeated at line 2, column 2 (byte 21)');
  });

  test("for good: later calls throw the same error", () => {
    const scanner = createRequestScanner();
    expect(() => scanner.push(bytesOf("[]"))).toThrow("The body is no JSON object");
    expect(() => scanner.push(bytesOf("{}"))).toThrow("The body is no JSON object");
    expect(() => scanner.end()).toThrow("The body is no JSON object");
  });
});

describe("properties", () => {
  const options = { keys: ["user", "n"], maxDepth: 12, maxValueBytes: 40 };
  /** Bodies with many routing keys, some of the wrong type or repeated, spelled in various ways. */
  const body = fc
    .array(
      fc.tuple(
        fc.constantFrom(
          '"model"',
          '"stream"',
          '"user"',
          '"n"',
          '"m\\u006fdel"',
          '"x"',
          '"y\\n"',
          '"Model"',
          '"北"',
        ),
        fc.oneof(
          fc.json({ maxDepth: 4 }),
          fc.json({ maxDepth: 2, stringUnit: "binary" }),
          fc.constantFrom('"gpt-4o"', "true", "-1.50E+3", '"\\uD83D\\ude00"', "[ ]", "{ }", "null"),
        ),
        fc.constantFrom("", " ", "\n\t", "\r\n "),
      ),
      { maxLength: 6 },
    )
    .map((members) => `{${members.map(([key, value, ws]) => ws + key + ws + ":" + value + ws).join(",")}}`);
  const mutation = fc.record({
    at: fc.nat(),
    remove: fc.nat(2),
    insert: fc.uint8Array({ maxLength: 2 }),
    text: fc.constantFrom("", '"', "{", "}", "[", "]", ",", ":", "0", "-", "\\", "e", "."),
  });
  const mutated = fc.tuple(body, fc.option(mutation)).map(([text, change]) => {
    const bytes = bytesOf(text);
    if (change === null) return bytes;
    const at = change.at % (bytes.length + 1);
    const insert = change.text === "" ? change.insert : bytesOf(change.text);
    return concat([bytes.subarray(0, at), insert, bytes.subarray(at + change.remove)]);
  });

  test("the outcome is the same under every chunking", () => {
    fc.assert(
      fc.property(mutated, places, (bytes, cuts) => {
        const whole = outcome([bytes], options);
        expect(outcome(cut(bytes, cuts), options)).toEqual(whole);
        expect(outcome(singles(bytes), options)).toEqual(whole);
      }),
      { numRuns: 1500 },
    );
  });

  test("it accepts exactly the objects that JSON.parse accepts, and reads the same values", () => {
    const keys = ["user", "n"];
    fc.assert(
      fc.property(mutated, (bytes) => {
        const found = attempt([bytes], { keys, maxDepth: 1000, maxValueBytes: 100_000 });
        // These two refuse what is valid JSON; the table above has them.
        const error = found instanceof ProtocolError ? found : undefined;
        fc.pre(error?.code !== "duplicate_key" && error?.code !== "wrong_type");
        const members = membersOf(bytes);
        expect(error === undefined).toBe(members !== undefined);
        expect(valuesOf(found)).toEqual(
          new Map([...(members ?? [])].filter(([key]) => ["model", "stream", ...keys].includes(key))),
        );
      }),
      { numRuns: 3000 },
    );
  });
});
