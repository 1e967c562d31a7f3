import { once } from "node:events";
import { connect } from "node:net";
import { gunzipSync } from "node:zlib";
import { request } from "node:http";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { z } from "zod";
import { type Provider, createProvider } from "./provider.ts";

const completionSchema = z.object({
  choices: z.tuple([
    z.object({
      finish_reason: z.string(),
      message: z.object({ content: z.string().nullable(), reasoning_content: z.string().optional() }),
    }),
  ]),
  usage: z.object({
    completion_tokens: z.number(),
    completion_tokens_details: z.object({ reasoning_tokens: z.number() }),
  }),
});
const errorSchema = z.object({
  error: z.object({
    message: z.string(),
    type: z.string(),
    param: z.null(),
    code: z.string().nullable(),
  }),
});
/** Strict: what a client's helper would trip over. */
const chunkSchema = z.looseObject({
  id: z.string().min(1),
  object: z.literal("chat.completion.chunk"),
  created: z.int(),
  model: z.string(),
  choices: z.array(
    z.strictObject({
      index: z.literal(0),
      delta: z.strictObject({
        role: z.literal("assistant").optional(),
        content: z.string().optional(),
        reasoning_content: z.string().optional(),
        tool_calls: z
          .array(
            z.strictObject({
              index: z.int(),
              id: z.string().optional(),
              type: z.literal("function").optional(),
              function: z.strictObject({ name: z.string().optional(), arguments: z.string() }),
            }),
          )
          .optional(),
      }),
      logprobs: z.null(),
      finish_reason: z.string().nullable(),
    }),
  ),
});

let provider: Provider;
let url: string;

beforeEach(async () => {
  provider = createProvider({ models: ["m"] });
  url = await provider.listen();
});
afterEach(() => provider.close());

type Fields = Readonly<Record<string, unknown>>;

function chat(fields: Fields = {}, init: RequestInit = {}): Promise<Response> {
  return fetch(`${url}/v1/chat/completions`, {
    method: "POST",
    body: JSON.stringify({ model: "m", messages: [{ role: "user", content: "hello there" }], ...fields }),
    ...init,
  });
}

/** The JSON of each event; throws on anything that is not `data: JSON` and a blank line. */
function eventsOf(text: string): unknown[] {
  expect(text.endsWith("data: [DONE]\n\n")).toBe(true);
  return text
    .slice(0, -"data: [DONE]\n\n".length)
    .split("\n\n")
    .slice(0, -1)
    .map((event) => {
      expect(event.startsWith("data: ")).toBe(true);
      return JSON.parse(event.slice("data: ".length));
    });
}

function chunksOf(text: string): Array<z.output<typeof chunkSchema>> {
  return eventsOf(text).map((event) => chunkSchema.parse(event));
}

async function completionOf(
  response: Response | Promise<Response>,
): Promise<z.output<typeof completionSchema>> {
  return completionSchema.parse(await (await response).json());
}

describe("answers", () => {
  it("gives the same bytes for the same request, in another provider too", async () => {
    const other = createProvider({ models: ["m"] });
    await using _ = other;
    const otherUrl = await other.listen();
    const body = JSON.stringify({ model: "m", stream: true, messages: [{ role: "user", content: "hi" }] });
    const answers = await Promise.all(
      [url, url, otherUrl].map(async (base) =>
        (await fetch(`${base}/v1/chat/completions`, { method: "POST", body })).text(),
      ),
    );
    expect(answers[0]).toHaveLength(answers[1]?.length ?? -1);
    expect(new Set(answers).size).toBe(1);
    expect(await (await chat()).text()).not.toBe(answers[0]);
  });

  it("streams what it answers in one piece", async () => {
    const whole = await completionOf(chat({ iop_test: { reasoning_tokens: 3 } }));
    const events = chunksOf(
      await (
        await chat({
          stream: true,
          stream_options: { include_usage: true },
          iop_test: { reasoning_tokens: 3 },
        })
      ).text(),
    );
    const deltas = events.flatMap((event) => event.choices);
    const { message, finish_reason: finish } = whole.choices[0];
    expect(deltas.map(({ delta }) => delta.content ?? "").join("")).toBe(message.content);
    expect(deltas.map(({ delta }) => delta.reasoning_content ?? "").join("")).toBe(message.reasoning_content);
    expect(deltas.filter((delta) => delta.finish_reason !== null).map((d) => d.finish_reason)).toEqual([
      finish,
    ]);
    expect(events.at(-1)).toMatchObject({ choices: [], usage: whole.usage });
    expect(events.at(-1)).toHaveProperty("usage.prompt_tokens_details.cached_tokens", 1);
    expect(events.slice(0, -1).every((event) => event["usage"] === null)).toBe(true);
    expect(whole.usage.completion_tokens_details.reasoning_tokens).toBe(3);
  });

  it("leaves usage out of a stream that did not ask for it", async () => {
    const events = chunksOf(await (await chat({ stream: true })).text());
    expect(events.some((event) => "usage" in event)).toBe(false);
  });

  it("calls each tool with arguments of its schema, the calls taking turns", async () => {
    const tools = [
      {
        type: "function",
        function: {
          name: "weather",
          parameters: {
            type: "object",
            properties: {
              city: { type: "string" },
              unit: { enum: ["c", "f"] },
              days: { type: "integer", maximum: 3 },
            },
          },
        },
      },
      { type: "function", function: { name: "noop" } },
    ];
    const events = chunksOf(await (await chat({ stream: true, tools, iop_test: { tool_calls: 2 } })).text());
    const calls: Array<{ id?: string; type?: string; name?: string; arguments: string }> = [];
    for (const piece of events.flatMap((event) => event.choices[0]?.delta.tool_calls ?? [])) {
      const { index, id, type, function: called } = piece;
      const call = (calls[index] ??= { arguments: "" });
      if (id !== undefined) Object.assign(call, { id, type, name: called.name });
      call.arguments += called.arguments;
    }
    expect(calls.map((call) => [call.type, call.name])).toEqual([
      ["function", "weather"],
      ["function", "noop"],
    ]);
    expect(calls[0]?.id).not.toBe(calls[1]?.id);
    const weather = JSON.parse(calls[0]?.arguments ?? "");
    expect(weather).toEqual({
      city: expect.any(String),
      unit: expect.stringMatching(/^[cf]$/),
      days: expect.any(Number),
    });
    expect(weather.days).toBeLessThanOrEqual(3);
    expect(calls[1]?.arguments).toBe("{}");
    expect(events.at(-1)).toMatchObject({ choices: [{ finish_reason: "tool_calls" }] });
  });

  it("answers in words once a tool has given its result, or where tools are forbidden", async () => {
    const tools = [{ type: "function", function: { name: "f" } }];
    const messages = [
      { role: "user", content: "x" },
      { role: "tool", tool_call_id: "c", content: "42" },
    ];
    for (const fields of [
      { tools, messages },
      { tools, tool_choice: "none" },
    ]) {
      const { choices } = await completionOf(chat(fields));
      expect(choices[0]).toMatchObject({ finish_reason: "stop", message: { content: expect.any(String) } });
    }
  });

  it("stops at max_tokens", async () => {
    const { choices, usage } = await completionOf(chat({ max_tokens: 2 }));
    expect(choices[0].finish_reason).toBe("length");
    expect(usage.completion_tokens).toBe(2);
  });

  it("lists its models and knows no others", async () => {
    const list = await (await fetch(`${url}/v1/models`)).json();
    expect(list).toMatchObject({ object: "list", data: [{ id: "m", object: "model" }] });
    const unknown = await chat({ model: "other" });
    expect(unknown.status).toBe(404);
    expect(errorSchema.parse(await unknown.json()).error.code).toBe("model_not_found");
  });

  it("keeps the pace that it is asked for", async () => {
    const start = performance.now();
    await (await chat({ stream: true, iop_test: { tokens: 10, tokens_per_second: 100 } })).text();
    // 12 pieces after the first, 10 ms apart; no upper bound, which a busy machine would break.
    expect(performance.now() - start).toBeGreaterThan(100);
  });
});

describe("misbehaviour", () => {
  it("refuses with a status, headers and OpenAI's error body", async () => {
    const response = await chat({ iop_test: { status: 429, headers: [["retry-after", "7"]] } });
    expect([response.status, response.headers.get("retry-after")]).toEqual([429, "7"]);
    expect(await response.json()).toEqual({
      error: { message: expect.any(String), type: "rate_limit_error", param: null, code: "test_error" },
    });
  });

  it.each([
    ["not JSON", "{"],
    ["no messages", JSON.stringify({ model: "m", messages: [] })],
    [
      "a behaviour that does not exist",
      JSON.stringify({ model: "m", messages: [{ role: "user" }], iop_test: { x: 1 } }),
    ],
  ])("answers 400 to %s", async (_name, body) => {
    const response = await chat({}, { body });
    expect(response.status).toBe(400);
    expect(errorSchema.parse(await response.json()).error.type).toBe("invalid_request_error");
  });

  it("puts an error into the middle of a stream, after what came before", async () => {
    const text = await (await chat({ stream: true, iop_test: { fail: "error_event" } })).text();
    const events = eventsOf(text);
    expect(events.length).toBeGreaterThan(3);
    expect(events.at(-1)).toMatchObject({ error: { type: "server_error" } });
  });

  it.each(["headers", "first_token", "middle"] as const)("cuts at %s", async (at) => {
    const seen = await raw({ stream: true, iop_test: { fail: "cut", at } });
    expect(seen.includes("HTTP/1.1 200")).toBe(at !== "headers");
    expect(seen.includes("data: ")).toBe(at === "middle");
    expect(seen).not.toContain("[DONE]");
    const state = await provider.when(({ active_requests: active }) => active === 0, deadline());
    expect(state).toMatchObject({ cut: 1, aborted: 0, completed: 0 });
  });

  it.each(["headers", "first_token", "middle"] as const)("hangs at %s until released", async (at) => {
    const response = chat({ stream: true, iop_test: { fail: "hang", at } });
    await provider.when(({ hanging }) => hanging === 1, deadline());
    if (at !== "headers") expect((await response).status).toBe(200);
    provider.release();
    expect(eventsOf(await (await response).text()).length).toBeGreaterThan(3);
  });

  it("notices that the client of a hanging response is gone", async () => {
    const controller = new AbortController();
    const response = chat({ stream: true, iop_test: { fail: "hang" } }, { signal: controller.signal });
    await provider.when(({ hanging }) => hanging === 1, deadline());
    await response;
    controller.abort();
    const state = await provider.when(({ hanging, open_sockets: open }) => hanging + open === 0, deadline());
    expect(state).toMatchObject({ aborted: 1, active_requests: 0, completed: 0 });
  });

  it.each(["random", "bytes"] as const)("cuts the same bytes elsewhere: %s", async (split) => {
    const plain = await (await chat({ stream: true, iop_test: { tokens: 4 } })).text();
    expect(await (await chat({ stream: true, iop_test: { tokens: 4, split } })).text()).toBe(plain);
  });

  it("compresses whatever the client accepts", async () => {
    const plain = await (await chat({ stream: true })).text();
    const bytes = await rawBody({ stream: true, iop_test: { gzip: true } });
    expect(gunzipSync(bytes).toString()).toBe(plain);
  });

  it("writes many chunks of one size", async () => {
    const bytes = await rawBody({ stream: true, iop_test: { chunks: 500, chunk_bytes: 1000 } });
    const events = bytes.toString().split("\n\n");
    expect(events.filter((event) => event.length + 2 === 1000)).toHaveLength(500);
  });

  it("fills a body to a length, and it is still the answer", async () => {
    const text = await (await chat({ iop_test: { body_bytes: 300_000, text: "é" } })).text();
    expect(Buffer.byteLength(text)).toBe(300_000);
    expect(completionSchema.parse(JSON.parse(text)).choices[0].message.content).toBe("é");
  });

  it("echoes what it received, JSON or not", async () => {
    const response = await fetch(`${url}/any/path?x=1`, {
      method: "POST",
      body: new Uint8Array([0xff, 0xfe]),
      headers: { "x-test": '{"echo":true}', "X-Case": "kept" },
    });
    expect(await response.json()).toMatchObject({
      method: "POST",
      path: "/any/path?x=1",
      body_bytes: 2,
      headers: expect.arrayContaining([["X-Case", "kept"]]),
      body_sha256: "b3d510ef04275ca8e698e5b3cbb0ece3949ef9252f0cdc839e9ee347409a2209",
    });
  });

  it("demands its key", async () => {
    const locked = createProvider({ apiKey: "k" });
    await using _ = locked;
    const base = await locked.listen();
    const statuses = await Promise.all(
      [{}, { authorization: "Bearer x" }, { authorization: "Bearer k" }].map(
        async (headers) => (await fetch(`${base}/v1/models`, { headers })).status,
      ),
    );
    expect(statuses).toEqual([401, 401, 200]);
  });
});

describe("counters", () => {
  it("tells over HTTP what tests wait for, without counting them", async () => {
    const responses = [1, 2].map(() => chat({ stream: true, iop_test: { fail: "hang" } }));
    const state = await (await fetch(`${url}/_test/state?hanging=2`, { signal: deadline() })).json();
    expect(state).toMatchObject({ requests: 2, active_requests: 2, max_active_requests: 2, open_sockets: 2 });
    await fetch(`${url}/_test/release`, { method: "POST" });
    await Promise.all(responses.map(async (response) => (await response).text()));
    const after = await (await fetch(`${url}/_test/state?active_requests=0`, { signal: deadline() })).json();
    expect(after).toMatchObject({ requests: 2, completed: 2, aborted: 0 });
    await fetch(`${url}/_test/reset`, { method: "POST" });
    expect(provider.state()).toMatchObject({ requests: 0, completed: 0, max_active_requests: 0 });
  });
});

/** Fails a test that waits for what does not come. */
function deadline(): AbortSignal {
  return AbortSignal.timeout(5_000);
}

/** All bytes that a socket gets. */
async function raw(fields: Fields): Promise<string> {
  const body = JSON.stringify({
    model: "m",
    messages: [{ role: "user", content: "hello there" }],
    ...fields,
  });
  const socket = connect(Number(new URL(url).port), "127.0.0.1");
  let seen = "";
  socket.setEncoding("utf8").on("data", (chunk) => (seen += String(chunk)));
  socket.on("error", () => {});
  socket.write(
    `POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
  );
  await once(socket, "close", { signal: deadline() });
  return seen;
}

/** A response's body, not decoded. */
async function rawBody(fields: Fields): Promise<Buffer> {
  const sent = request(`${url}/v1/chat/completions`, { method: "POST", agent: false });
  sent.end(JSON.stringify({ model: "m", messages: [{ role: "user", content: "hello there" }], ...fields }));
  const [response] = await once(sent, "response", { signal: deadline() });
  const chunks: Buffer[] = [];
  for await (const chunk of response) chunks.push(chunk);
  return Buffer.concat(chunks);
}
