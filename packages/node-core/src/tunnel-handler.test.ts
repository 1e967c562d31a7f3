import { type TunnelResponse, RuntimeError } from "@iop/agent-runtime";
import * as fc from "fast-check";
import { expect, test } from "vitest";

import { runNode, type RunningNode } from "./testing/running-node.ts";
import type { Script } from "./testing/scripted-adapter.ts";
import { bytes, respond, scriptedAdapter, untilAborted } from "./testing/scripted-adapter.ts";

/** A ready Node with one provider `p` of capacity 2 whose tunnel is this. */
async function serving(tunnel: NonNullable<Script["tunnel"]>): Promise<RunningNode> {
  const node = await runNode(scriptedAdapter({ tunnel }).adapter);
  await node.edge.last.welcome([{ id: "p", capacity: 2 }]);
  return node;
}

/** What a tunnel says to a request, at once. */
async function answerOf(
  node: RunningNode,
  ...open: Parameters<RunningNode["edge"]["last"]["open"]>
): Promise<{ story: string[]; message: string }> {
  const tunnel = node.edge.last.open(...open).read();
  await node.clock.settle();
  expect(tunnel.ends).toMatchObject([{ cause: "terminal" }]);
  return { story: tunnel.story, message: tunnel.errorMessage };
}

/** Both places of `p` are free. */
async function expectFree(node: RunningNode): Promise<void> {
  const both = [node.edge.last.open({ requestId: "free" }), node.edge.last.open({ requestId: "free" })];
  for (const tunnel of both) tunnel.read();
  await node.clock.settle();
  for (const tunnel of both) expect(tunnel.story.at(-1)).not.toBe("error capacity_exhausted");
}

test("the request reaches the provider whole, the answer comes back in order, usage before the end", async () => {
  const seen: unknown[] = [];
  const node = await serving((request) => {
    seen.push({ ...request, body: Buffer.concat(request.body).toString() });
    return Promise.resolve(
      respond([bytes("one"), bytes(""), bytes("two")], {
        status: 418,
        headers: [
          ["X-A", "1"],
          ["x-a", "2"],
        ],
        usage: () => ({ inputTokens: 7, outputTokens: 0, cachedInputTokens: 3 }),
      }),
    );
  });
  const tunnel = node.edge.last
    .open(
      {
        requestId: "r-1",
        headers: [{ $typeName: "iop.Header", name: "X-B", value: "b" }],
        body: bytes("head "),
        firstByteTimeoutMs: 5,
        idleTimeoutMs: 6,
      },
      [bytes("and "), bytes("tail")],
    )
    .read();
  await node.clock.settle();
  expect(seen).toEqual([
    {
      requestId: "r-1",
      operation: "chat_completions",
      method: "POST",
      path: "",
      headers: [["X-B", "b"]],
      body: "head and tail",
      target: "m",
      firstByteTimeoutMs: 5,
      idleTimeoutMs: 6,
    },
  ]);
  expect(tunnel.story).toEqual(["start 418", "body", "usage", "end"]);
  expect(tunnel.body.toString()).toBe("onetwo");
  expect(tunnel.frames[0]?.headers).toMatchObject([
    { name: "X-A", value: "1" },
    { name: "x-a", value: "2" },
  ]);
  const usage = tunnel.frames.find((frame) => frame.usage)?.usage;
  expect(usage).toMatchObject({ inputTokens: 7n, outputTokens: 0n, cachedInputTokens: 3n, partial: false });
  expect(usage).not.toHaveProperty("reasoningTokens");
  expect(tunnel.frames.map((frame) => frame.sequence)).toEqual(tunnel.frames.map((_, index) => index + 1));
  await node.end();
});

test("the provider is not pulled while the edge does not read", async () => {
  const source = { pulled: 0 };
  const chunk = new Uint8Array(16 * 1024).fill(1);
  const node = await serving(() => Promise.resolve(respond(countedChunks(source, chunk, 100))));
  const tunnel = node.edge.last.open();
  await node.clock.settle();
  // A window of 256 KiB, 64 KiB queued here, and the frames' own heads.
  expect(source.pulled).toBeGreaterThan(10);
  expect(source.pulled).toBeLessThanOrEqual(21);
  const stalled = source.pulled;
  await node.clock.advance(60_000);
  expect(source.pulled).toBe(stalled);
  tunnel.read();
  await node.clock.settle();
  expect(tunnel.body.length).toBe(100 * chunk.length);
  expect(tunnel.story).toEqual(["start 200", "body", "end"]);
  await node.end();
});

function* countedChunks(source: { pulled: number }, chunk: Uint8Array, count: number): Generator<Uint8Array> {
  while (source.pulled < count) {
    source.pulled++;
    yield chunk;
  }
}

test.each(["before the head", "between head and body", "within the body", "while the edge does not read"])(
  "a cancel %s is answered once the provider has stopped, and not before",
  async (stage) => {
    const closing = Promise.withResolvers<void>();
    let signalled = false;
    const node = await serving(async ({ requestId }, { signal }) => {
      if (requestId === "free") return respond([]);
      signal.addEventListener("abort", () => {
        signalled = true;
      });
      // The socket takes its time to close.
      const socket = async (): Promise<never> => {
        try {
          return await untilAborted(signal);
        } finally {
          await closing.promise;
        }
      };
      if (stage === "before the head") return socket();
      return respond(
        (async function* body() {
          if (stage === "within the body") yield bytes("x");
          if (stage === "while the edge does not read") {
            try {
              for (;;) yield new Uint8Array(16 * 1024);
            } finally {
              await closing.promise;
            }
          }
          await socket();
        })(),
        { usage: () => ({ inputTokens: 1 }) },
      );
    });
    const tunnel = node.edge.last.open();
    if (stage !== "while the edge does not read") tunnel.read();
    await node.clock.settle();
    tunnel.stream.cancel("the client left");
    await node.clock.advance(1_000);
    expect(signalled).toBe(true);
    expect(tunnel.ends).toEqual([]);
    closing.resolve();
    await node.clock.settle();
    expect(tunnel.ends).toMatchObject([{ cause: "terminal" }]);
    await expectFree(node);
    await node.end();
  },
);

test("a cancel before the body is complete never reaches the provider", async () => {
  let called = false;
  const node = await serving(() => {
    called = true;
    return Promise.resolve(respond([]));
  });
  const tunnel = node.edge.last.open({ bodyLength: 100n });
  await node.clock.settle();
  tunnel.stream.cancel("the client left");
  await node.clock.settle();
  expect(tunnel.ends).toMatchObject([{ cause: "terminal" }]);
  expect(called).toBe(false);
  await node.end();
});

test("a response head that comes after the cancel is closed unread", async () => {
  const done: string[] = [];
  const head = Promise.withResolvers<TunnelResponse>();
  const node = await serving(() => head.promise);
  const tunnel = node.edge.last.open().read();
  await node.clock.settle();
  tunnel.stream.cancel("the client left");
  await node.clock.settle();
  head.resolve({ ...respond([]), body: noted(done) });
  await node.clock.settle();
  expect([done, tunnel.ends.length]).toEqual([["return"], 1]);
  await node.end();
});

test("an answer that is refused is told through the signal before its body is returned", async () => {
  const done: string[] = [];
  const node = await serving((_, { signal }) => {
    signal.addEventListener("abort", () => done.push("abort"));
    return Promise.resolve({ ...respond([], { status: 99 }), body: noted(done) });
  });
  expect((await answerOf(node)).story).toEqual(["error provider_error"]);
  expect(done).toEqual(["abort", "return"]);
  await node.end();
});

/** A body that notes what is asked of it. */
function noted(done: string[]): AsyncIterable<Uint8Array> {
  const end = (name: string): Promise<IteratorResult<Uint8Array>> => {
    done.push(name);
    return Promise.resolve({ done: true, value: undefined });
  };
  return { [Symbol.asyncIterator]: () => ({ next: () => end("next"), return: () => end("return") }) };
}

test("a full gate refuses, nothing runs, and a place is free again before its terminal has left", async () => {
  const ends: PromiseWithResolvers<TunnelResponse>[] = [];
  const node = await serving(() => {
    const end = Promise.withResolvers<TunnelResponse>();
    ends.push(end);
    return end.promise;
  });
  const [first, second] = [node.edge.last.open().read(), node.edge.last.open().read()];
  await node.clock.settle();
  expect((await answerOf(node)).story).toEqual(["error capacity_exhausted"]);
  expect(ends).toHaveLength(2);
  ends[0]?.resolve(respond([]));
  await node.clock.settle();
  expect([first.story, second.story]).toEqual([["start 200", "end"], []]);
  const third = node.edge.last.open().read();
  await node.clock.settle();
  expect([third.story, ends.length]).toEqual([[], 3]);
  await node.end();
});

const failures: Array<[string, NonNullable<Script["tunnel"]>, string[]]> = [
  [
    "throws at once",
    () => {
      throw new TypeError("the prompt is in here");
    },
    ["error internal"],
  ],
  ["refuses", () => Promise.reject(new RuntimeError("provider_error", "no")), ["error provider_error"]],
  [
    "cannot be iterated",
    () =>
      Promise.resolve({
        ...respond([]),
        body: {
          [Symbol.asyncIterator]: () => {
            throw new TypeError("the prompt is in here");
          },
        },
      }),
    ["error internal"],
  ],
  [
    "is cut before its body",
    () => Promise.resolve(respond(cut([]))),
    ["start 200", "error provider_stream_cut"],
  ],
  [
    "is cut within its body, with usage so far",
    () => Promise.resolve(respond(cut([bytes("x")]), { usage: () => ({ inputTokens: 1, partial: true }) })),
    ["start 200", "body", "usage", "error provider_stream_cut"],
  ],
  [
    "cannot say its usage",
    () =>
      Promise.resolve(
        respond([], {
          usage: () => {
            throw new TypeError("the prompt is in here");
          },
        }),
      ),
    ["start 200", "end"],
  ],
  ["has a strange status", () => Promise.resolve(respond([], { status: 99 })), ["error provider_error"]],
  [
    "breaks a header line",
    () => Promise.resolve(respond([], { headers: [["x", "a\r\nset-cookie: b"]] })),
    ["error provider_error"],
  ],
  [
    "names a header badly",
    () => Promise.resolve(respond([], { headers: [["x y", "a"]] })),
    ["error provider_error"],
  ],
  [
    "has too long a head",
    () => Promise.resolve(respond([], { headers: [["x", "a".repeat(70_000)]] })),
    ["error provider_error"],
  ],
  [
    "fails with a long code and text",
    () => Promise.reject(new RuntimeError("provider_error", "😀".repeat(100_000))),
    ["error provider_error"],
  ],
];

async function* cut(chunks: readonly Uint8Array[]): AsyncGenerator<Uint8Array> {
  yield* chunks;
  throw new RuntimeError("provider_stream_cut", "the server closed");
}

test.each(failures)("a provider that %s costs its own request only", async (_, tunnel, story) => {
  const signals: AbortSignal[] = [];
  const node = await serving((request, context) => {
    signals.push(context.signal);
    return tunnel(request, context);
  });
  const answer = await answerOf(node);
  expect(answer.story).toEqual(story);
  expect(answer.message).not.toContain("prompt");
  expect(answer.message.length).toBeLessThanOrEqual(2_048);
  if (story.at(-1) !== "end") expect(signals[0]?.aborted).toBe(true);
  await expectFree(node);
  await node.end();
});

test("requests that may not be sent are refused before anything runs", async () => {
  let called = 0;
  const node = await serving(() => {
    called++;
    return Promise.resolve(respond([]));
  });
  const bad = { $typeName: "iop.Header", name: "x", value: "a\nb" } as const;
  expect((await answerOf(node, { headers: [bad] })).story).toEqual(["error invalid_request"]);
  expect((await answerOf(node, { operation: "messages" })).story).toEqual(["error unsupported_operation"]);
  expect((await answerOf(node, { providerId: "q" })).story).toEqual(["error unknown_provider"]);
  expect(await answerOf(node, { bodyLength: 1_000_001n })).toEqual({
    story: ["error body_too_large"],
    message: "body of 1000001 bytes; the limit is 1000000",
  });
  expect(called).toBe(0);
  await node.end();
});

test("the node's own limits hold whatever the edge's are", async () => {
  const node = await runNode(scriptedAdapter({}).adapter, {
    limits: { bodyBytes: 1_000, heldBodyBytes: 1_500 },
  });
  await node.edge.last.welcome([{ id: "p" }]);
  expect((await answerOf(node, { bodyLength: 1_001n })).story).toEqual(["error body_too_large"]);
  const waiting = node.edge.last.open({ bodyLength: 1_000n }).read();
  await node.clock.settle();
  expect((await answerOf(node, {}, [new Uint8Array(600)])).story).toEqual(["error capacity_exhausted"]);
  waiting.stream.cancel("enough");
  await node.clock.settle();
  expect((await answerOf(node, {}, [new Uint8Array(600)])).story).toEqual(["start 200", "end"]);
  await node.end();
});

test("whatever a provider does and whenever a cancel comes: one terminal, every byte in order, no place lost", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.integer({ min: 0, max: 40_000 }), { maxLength: 8 }),
      fc.constantFrom("end", "cut", "hang"),
      fc.option(fc.nat({ max: 6 })),
      async (lengths, ending, cancelAfter) => {
        const chunks = lengths.map((length, index) => new Uint8Array(length).fill(index + 1));
        const node = await serving(({ requestId }, { signal }) =>
          Promise.resolve(
            respond(
              (async function* body() {
                if (requestId === "free") return;
                for (const chunk of chunks) {
                  await Promise.resolve();
                  yield chunk;
                }
                if (ending === "cut") throw new RuntimeError("provider_stream_cut", "cut");
                if (ending === "hang") await untilAborted(signal);
              })(),
            ),
          ),
        );
        const tunnel = node.edge.last.open().read();
        for (let turn = 0; turn < (cancelAfter ?? 0); turn++) await Promise.resolve();
        if (cancelAfter === null) await node.clock.settle();
        if (cancelAfter !== null || ending === "hang") tunnel.stream.cancel("enough");
        await node.clock.settle();
        expect(tunnel.ends).toHaveLength(1);
        const sent = Buffer.concat(chunks);
        expect(tunnel.body.equals(sent.subarray(0, tunnel.body.length))).toBe(true);
        if (tunnel.story.at(-1) === "end") expect(tunnel.body.length).toBe(sent.length);
        await expectFree(node);
        await node.end();
      },
    ),
    { numRuns: 60 },
  );
});
