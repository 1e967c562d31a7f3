import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createSseSplitter } from "./sse-splitter.ts";
import { bytesOf, cut, places, singles } from "./testing/chunkings.ts";

interface Split {
  readonly events: string[];
  readonly oversized: number[];
  readonly tail: string | undefined;
}

const textOf = (bytes: Uint8Array): string => new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);

function split(chunks: readonly Uint8Array[], maxEventBytes?: number): Split {
  const events: Uint8Array[] = [];
  const oversized: number[] = [];
  const splitter = createSseSplitter({
    maxEventBytes,
    onEvent: (event) => events.push(event),
    onOversize: (byteLength) => oversized.push(byteLength),
  });
  for (const chunk of chunks) splitter.push(chunk);
  const tail = splitter.end();
  // Read only now: what was handed out must not change under later chunks.
  return { events: events.map(textOf), oversized, tail: tail && textOf(tail) };
}

describe("line ends", () => {
  test.each([
    ["LF", "a\n\nb\n\n", ["a", "b"]],
    ["CRLF", "a\r\n\r\nb\r\n\r\n", ["a", "b"]],
    ["CR", "a\r\rb\r\r", ["a", "b"]],
    ["CRLF then LF", "a\r\n\nb\n\r\nc\r\n\r", ["a", "b", "c"]],
    ["LF then CR", "a\n\rb\r\n\rc\r\r\n", ["a", "b", "c"]],
    ["several lines", "event: x\ndata: 1\r\ndata: 2\rid\n\n", ["event: x\ndata: 1\r\ndata: 2\rid"]],
    ["blank lines only", "\n\r\n\r\r\n\n", []],
    ["blank lines between", "a\n\n\n\n\r\rb\n\n", ["a", "b"]],
    ["byte order mark", "\ufeffa\n\n", ["a"]],
    ["only one byte order mark", "\ufeff\ufeffa\n\n\ufeffb\n\n", ["\ufeffa", "\ufeffb"]],
  ])("%s", (_, stream, events) => {
    const expected = { events, oversized: [], tail: undefined };
    expect(split([bytesOf(stream)])).toEqual(expected);
    expect(split(singles(bytesOf(stream)))).toEqual(expected);
  });

  test("half of a byte order mark is content", () => {
    const bytes = new Uint8Array([0xef, 0xbb, 0x61, 0x0a, 0x0a]);
    const events: number[][] = [];
    for (const chunks of [[bytes], singles(bytes)]) {
      const splitter = createSseSplitter({ onEvent: (event) => events.push([...event]) });
      for (const chunk of chunks) splitter.push(chunk);
    }
    expect(events).toEqual([
      [0xef, 0xbb, 0x61],
      [0xef, 0xbb, 0x61],
    ]);
  });

  test("a CR at the end of a chunk delays no event", () => {
    const events: string[] = [];
    const splitter = createSseSplitter({ onEvent: (event) => events.push(textOf(event)) });
    splitter.push(bytesOf("data: 1\r\n\r"));
    expect(events).toEqual(["data: 1"]);
    splitter.push(bytesOf("\ndata: 2\r\r"));
    expect(events).toEqual(["data: 1", "data: 2"]);
  });
});

describe("the end", () => {
  test.each([
    ["", undefined],
    ["a\n\n", undefined],
    ["a\n\n\r\n", undefined],
    ["a\n\nb", "b"],
    ["a\n\nb\r\n", "b"],
    ["b\nc\r", "b\nc"],
    ["\ufeff", undefined],
  ])("%j leaves %j", (stream, tail) => {
    expect(split([bytesOf(stream)]).tail).toBe(tail);
    expect(split(singles(bytesOf(stream))).tail).toBe(tail);
  });
});

test("an event inside one chunk is a view of it", () => {
  const chunk = bytesOf("data: 1\n\ndata: 2\n\n");
  const events: Uint8Array[] = [];
  createSseSplitter({ onEvent: (event) => events.push(event) }).push(chunk);
  expect(events.map((event) => [event.buffer === chunk.buffer, event.byteOffset])).toEqual([
    [true, 0],
    [true, 9],
  ]);
});

test("an event over the bound is reported and skipped, the next ones are delivered", () => {
  const stream = bytesOf(`data: 1\n\n${"x".repeat(6)}\r\n${"y".repeat(6)}\r\n\r\n0123456789\n\nlast one!!!`);
  const expected = { events: ["data: 1", "0123456789"], oversized: [14, 11], tail: undefined };
  expect(split([stream], 10)).toEqual(expected);
  expect(split(singles(stream), 10)).toEqual(expected);
});

test("a line of 4 MiB in chunks of 1 KiB takes time in proportion to its length", () => {
  const splitter = createSseSplitter({ onEvent: (event) => (length = event.length) });
  const chunk = new Uint8Array(1024).fill(0x61);
  let length = 0;
  const started = performance.now();
  for (let i = 0; i < 4096; i++) splitter.push(chunk);
  splitter.push(bytesOf("\n\n"));
  expect(length).toBe(4 * 1024 * 1024);
  // A copy of everything at each chunk would move 8 GiB.
  expect(performance.now() - started).toBeLessThan(1000);
});

const normal = (text: string): string => text.replaceAll(/\r\n|\r/g, "\n");

test("the events are the same under every chunking, and those of a plain reading", () => {
  const piece = fc.constantFrom("\n", "\r", "\r\n", "\n\n", "data: x", ":", "é", "\ufeff", "long".repeat(8));
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 30 }), places, (pieces, cuts) => {
      const stream = pieces.join("");
      const bytes = bytesOf(stream);
      const whole = split([bytes], 40);
      expect(split(cut(bytes, cuts), 40)).toEqual(whole);
      expect(split(singles(bytes), 40)).toEqual(whole);

      const records = normal(stream.replace(/^\ufeff/, ""))
        .split("\n\n")
        .map((record) => record.replaceAll(/^\n+|\n+$/g, ""))
        .filter((record) => record !== "");
      const all = split([bytes]);
      const found = all.tail === undefined ? all.events : [...all.events, all.tail];
      expect(found.map(normal)).toEqual(records);
    }),
    { numRuns: 1500 },
  );
});
