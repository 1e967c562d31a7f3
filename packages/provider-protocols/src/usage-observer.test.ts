import type { Usage } from "@iop/agent-runtime";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { chatBodies, chatStreams } from "./testing/chat-streams.ts";
import { bytesOf, cut, places, singles } from "./testing/chunkings.ts";
import { createUsageObserver } from "./usage-observer.ts";

const STREAM = "text/event-stream; charset=utf-8";
const JSON_BODY = "application/json";

function observe(
  contentType: string | undefined,
  chunks: readonly Uint8Array[],
  clean = true,
): Usage | undefined {
  const observer = createUsageObserver({ contentType, driver: "openai_chat" });
  for (const chunk of chunks) observer.observe(chunk);
  observer.end(clean);
  return observer.usage();
}

const event = (json: string): string => `data: ${json}\n\n`;

describe.each([
  [STREAM, chatStreams],
  [JSON_BODY, chatBodies],
] as const)("%s", (contentType, fixtures) => {
  test.each(fixtures)("$name, cut at every byte", ({ body, usage }) => {
    const bytes = bytesOf(body);
    expect(observe(contentType, [bytes])).toStrictEqual(usage);
    expect(observe(contentType, singles(bytes))).toStrictEqual(usage);
    for (let at = 1; at < bytes.length; at++) {
      expect(observe(contentType, cut(bytes, [at]))).toStrictEqual(usage);
    }
  });
});

test("the counts are there as soon as their event is", () => {
  const observer = createUsageObserver({ contentType: STREAM, driver: "openai_chat" });
  observer.observe(bytesOf('data: {"usage":{"prompt_tokens":1,"completion_tokens":0}}\n'));
  expect(observer.usage()).toBeUndefined();
  observer.observe(bytesOf("\n"));
  expect(observer.usage()).toStrictEqual({ inputTokens: 1, outputTokens: 0 });
  observer.observe(bytesOf(event('{"usage":{"prompt_tokens":1,"completion_tokens":4}}')));
  expect(observer.usage()).toStrictEqual({ inputTokens: 1, outputTokens: 4 });
  observer.end(true);
  observer.observe(bytesOf(event('{"usage":{"prompt_tokens":9}}')));
  observer.end(false);
  expect(observer.usage()).toStrictEqual({ inputTokens: 1, outputTokens: 4 });
});

describe("a cut body", () => {
  const running = event('{"usage":{"prompt_tokens":10,"completion_tokens":3}}');

  test("keeps the latest counts, marked as partial", () => {
    expect(observe(STREAM, [bytesOf(`${running}data: {"usage":{"prompt_tok`)], false)).toStrictEqual({
      inputTokens: 10,
      outputTokens: 3,
      partial: true,
    });
  });

  test.each([
    ["a stream without counts", STREAM, 'data: {"choices":[]}\n\ndata: {"usage":{"prompt_tokens":1'],
    ["half a JSON body", JSON_BODY, '{"usage":{"prompt_tokens":1}'],
    ["nothing", STREAM, ""],
  ])("%s has none", (_, contentType, body) => {
    expect(observe(contentType, [bytesOf(body)], false)).toBeUndefined();
  });
});

test.each<[string, Usage | undefined]>([
  ['{"usage":null}', undefined],
  ['{"usage":{}}', undefined],
  ['{"usage":{"total_tokens":5,"cost":1}}', undefined],
  ['{"usage":[1]}', undefined],
  ['{"usage":"12"}', undefined],
  ['{"usage":{"prompt_tokens":"12","completion_tokens":null}}', undefined],
  ['{"usage":{"prompt_tokens":-1,"completion_tokens":1.5}}', undefined],
  ['{"usage":{"prompt_tokens":1e300,"completion_tokens":2}}', { outputTokens: 2 }],
  [
    '{"usage":{"prompt_tokens_details":[],"completion_tokens_details":7,"prompt_tokens":3}}',
    { inputTokens: 3 },
  ],
  [
    '{"usage":{"prompt_tokens_details":{"cached_tokens":1},"prompt_cache_hit_tokens":2}}',
    { cachedInputTokens: 1 },
  ],
  [
    '{"usage":{"prompt_tokens_details":{"cached_tokens":null},"prompt_cache_hit_tokens":2}}',
    { cachedInputTokens: 2 },
  ],
  [
    '{"usage":{"prompt_tokens":4,"prompt_tokens_details":{"cached_tokens":0}},"timings":{"cache_n":3}}',
    { inputTokens: 4, cachedInputTokens: 0 },
  ],
  ['{"timings":{"cache_n":3,"prompt_n":1}}', { cachedInputTokens: 3 }],
  ['{"timings":{"prompt_n":1}}', undefined],
  ['{"usage":null,"x_groq":{"usage":{"completion_tokens":1}}}', { outputTokens: 1 }],
  ['{"usage":null,"choices":[{"usage":{"completion_tokens":2}}]}', { outputTokens: 2 }],
  ['{"choices":[null],"x_groq":7,"usage":{"prompt_tokens":0}}', { inputTokens: 0 }],
  ['{"__proto__":{"usage":{"prompt_tokens":5}}}', undefined],
  ['[{"usage":{"prompt_tokens":1}}]', undefined],
  ['{"usage":{"prompt_tokens":1}', undefined],
])("%s", (json, usage) => {
  expect(observe(STREAM, [bytesOf(event(json))])).toStrictEqual(usage);
  expect(observe(JSON_BODY, [bytesOf(json)])).toStrictEqual(usage);
});

test("a later object without counts does not take back earlier ones", () => {
  const stream =
    event('{"usage":{"prompt_tokens":7,"completion_tokens":2}}') +
    event('{"usage":null}') +
    event('{"usage":{}}') +
    event('{"error":{"message":"boom"}, "usage": {"cost":1}}') +
    event("[DONE]");
  expect(observe(STREAM, [bytesOf(stream)])).toStrictEqual({ inputTokens: 7, outputTokens: 2 });
});

test.each([
  ["TEXT/Event-Stream;charset=UTF-8", true],
  [" text/event-stream ", true],
  ["text/event-streams", false],
  ["application/x-ndjson", false],
  ["text/plain", false],
  ["", false],
  [undefined, false],
])("content type %j: observed as a stream %j", (contentType, observed) => {
  const usage = observe(contentType, [bytesOf(event('{"usage":{"prompt_tokens":1}}'))]);
  expect(usage !== undefined).toBe(observed);
});

test("application/json with parameters is observed; other drivers are not", () => {
  const chunks = [bytesOf('{"usage":{"prompt_tokens":1}}')];
  expect(observe("Application/JSON; charset=utf-8", chunks)).toStrictEqual({ inputTokens: 1 });
  const other = createUsageObserver({ contentType: JSON_BODY, driver: "anthropic_messages" });
  for (const chunk of chunks) other.observe(chunk);
  other.end(true);
  expect(other.usage()).toBeUndefined();
});

function filler(bytes: number): Uint8Array[] {
  return Array.from({ length: bytes / 65_536 }, () => new Uint8Array(65_536).fill(0x61));
}

function bodyAround(bytes: number): Uint8Array[] {
  return [bytesOf('{"a":"'), ...filler(bytes), bytesOf('","usage":{"prompt_tokens":1}}')];
}

describe("bounds", () => {
  const eightMiB = 8 * 1024 * 1024;

  test("a JSON body over 8 MiB is passed over, one below is read", () => {
    expect(observe(JSON_BODY, bodyAround(eightMiB))).toBeUndefined();
    expect(observe(JSON_BODY, bodyAround(eightMiB - 65_536))).toStrictEqual({ inputTokens: 1 });
  });

  test("an event over 8 MiB is passed over, the next is read", () => {
    const chunks = [
      bytesOf('data: {"a":"'),
      ...filler(eightMiB),
      bytesOf('","usage":{"prompt_tokens":1}}\n\n'),
      bytesOf(event('{"usage":{"completion_tokens":2}}')),
    ];
    expect(observe(STREAM, chunks)).toStrictEqual({ outputTokens: 2 });
  });
});

test("it never throws, whatever passes", () => {
  const piece = fc.constantFrom(
    "data: ",
    "\n\n",
    '{"usage":',
    "{",
    "}",
    "null",
    '"timings"',
    "\r",
    '"x_groq":',
    "[",
    "7",
    "\ufeff",
  );
  const noise = fc.oneof(
    fc.uint8Array({ maxLength: 60 }),
    fc.array(piece, { maxLength: 20 }).map((pieces) => bytesOf(pieces.join(""))),
  );
  fc.assert(
    fc.property(
      noise,
      places,
      fc.constantFrom(STREAM, JSON_BODY),
      fc.boolean(),
      (bytes, cuts, contentType, clean) => {
        expect(() => observe(contentType, cut(bytes, cuts), clean)).not.toThrow();
        const deep = bytesOf(`data: {"usage":${"[".repeat(20_000)}\n\n`);
        expect(() => observe(contentType, [deep, bytes], clean)).not.toThrow();
      },
    ),
    { numRuns: 200 },
  );
});
