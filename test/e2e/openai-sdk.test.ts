import OpenAI, { APIError, AuthenticationError, NotFoundError } from "openai";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";

import { MODEL, type Stack, startStack } from "../support/stack.ts";

type StreamingBody = OpenAI.ChatCompletionCreateParamsStreaming;
type PlainBody = OpenAI.ChatCompletionCreateParamsNonStreaming;

/** The provider's own extension, which the client does not know. */
function withBehaviour<T extends StreamingBody | PlainBody>(
  body: T,
  behaviour: Readonly<Record<string, unknown>>,
): T {
  return { ...body, iop_test: behaviour };
}

const messages: OpenAI.ChatCompletionMessageParam[] = [{ role: "user", content: "Say something." }];
const tools: OpenAI.ChatCompletionTool[] = [
  {
    type: "function",
    function: {
      name: "get_weather",
      parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
    },
  },
];

let stack: Stack;
let client: OpenAI;
/** The same client, straight at the provider. */
let direct: OpenAI;

beforeAll(async () => {
  stack = await startStack();
  client = new OpenAI({ baseURL: `${stack.http}/v1`, apiKey: stack.apiKey, maxRetries: 0 });
  direct = new OpenAI({ baseURL: `${stack.providerUrl}/v1`, apiKey: "none", maxRetries: 0 });
});
afterEach(() => stack.idle());
afterAll(() => stack[Symbol.asyncDispose]());

describe("the openai package", () => {
  test("lists models", async () => {
    const models = await Array.fromAsync(client.models.list());
    expect(models.map((model) => model.id)).toEqual([MODEL]);
  });

  test("completes without streaming, with the usage that the provider reports", async () => {
    const through = await client.chat.completions.create({ model: MODEL, messages });
    const straight = await direct.chat.completions.create({ model: "iop-demo", messages });
    expect(through).toEqual(straight);
    expect(through.choices[0]?.message.content).not.toBe("");
    expect(through.usage?.prompt_tokens_details?.cached_tokens).toBeTypeOf("number");
    expect(through.usage?.completion_tokens_details?.reasoning_tokens).toBeTypeOf("number");
  });

  test("streams the chunks that the provider sends, usage included", async () => {
    const body: StreamingBody = {
      model: MODEL,
      messages,
      stream: true,
      stream_options: { include_usage: true },
    };
    const through = await Array.fromAsync(await client.chat.completions.create(body));
    const straight = await Array.fromAsync(
      await direct.chat.completions.create({ ...body, model: "iop-demo" }),
    );
    expect(through.length).toBeGreaterThan(3);
    expect(through).toEqual(straight);
    expect(through.at(-1)?.usage?.total_tokens).toBeGreaterThan(0);
  });

  test("calls tools, streaming and not", async () => {
    const plain = await client.chat.completions.create(
      withBehaviour<PlainBody>({ model: MODEL, messages, tools }, { tool_calls: 2 }),
    );
    expect(plain.choices[0]?.finish_reason).toBe("tool_calls");
    const calls = plain.choices[0]?.message.tool_calls ?? [];
    expect(calls).toHaveLength(2);

    const streamed = await client.chat.completions
      .stream(
        withBehaviour<StreamingBody>({ model: MODEL, messages, tools, stream: true }, { tool_calls: 2 }),
      )
      .finalChatCompletion();
    expect(
      streamed.choices[0]?.message.tool_calls?.map((call) => call.type === "function" && call.function.name),
    ).toEqual(["get_weather", "get_weather"]);
  });

  test.each([400, 500])("gets an upstream %i with its body", async (status) => {
    const body = withBehaviour<PlainBody>(
      { model: MODEL, messages },
      { status, error_message: `upstream says ${status}` },
    );
    const failure = await client.chat.completions.create(body).catch((error: unknown) => error);
    const straight = await direct.chat.completions
      .create({ ...body, model: "iop-demo" })
      .catch((error: unknown) => error);
    if (!(failure instanceof APIError) || !(straight instanceof APIError)) throw failure;
    expect(failure.status).toBe(status);
    expect(failure.message).toContain(`upstream says ${status}`);
    expect(failure.error).toEqual(straight.error);
  });

  test("gets an error in the middle of a stream as the provider sent it", async () => {
    const body = withBehaviour<StreamingBody>(
      { model: MODEL, messages, stream: true },
      { fail: "error_event" },
    );
    const read = async (from: OpenAI, model: string): Promise<unknown> => {
      const chunks: unknown[] = [];
      try {
        for await (const chunk of await from.chat.completions.create({ ...body, model })) chunks.push(chunk);
        return "a clean end";
      } catch (error) {
        return { chunks, said: error instanceof APIError ? error.error : error };
      }
    };
    const through = await read(client, MODEL);
    expect(through).toEqual(await read(direct, "iop-demo"));
    expect(through).toMatchObject({ said: { message: expect.stringContaining("stopped") } });
  });

  test("sees a cut where the provider was cut, not a clean end", async () => {
    for (const stream of [true, false]) {
      const body = { model: MODEL, messages, stream, iop_test: { fail: "cut", tokens: 50 } };
      const response = await fetch(`${stack.http}/v1/chat/completions`, {
        method: "POST",
        headers: { authorization: `Bearer ${stack.apiKey}`, "content-type": "application/json" },
        body: JSON.stringify(body),
      });
      expect(response.status).toBe(200);
      await expect(response.text()).rejects.toThrow("terminated");
    }
    const sdk = client.chat.completions.create(
      withBehaviour<StreamingBody>({ model: MODEL, messages, stream: true }, { fail: "cut", tokens: 50 }),
    );
    await expect(sdk.then((stream) => Array.fromAsync(stream))).rejects.toThrow(
      /terminated|aborted|premature/iu,
    );
  });

  test("gets our own errors in OpenAI's shape", async () => {
    const unknown = await client.chat.completions
      .create({ model: "nobody", messages })
      .catch((error: unknown) => error);
    expect(unknown).toBeInstanceOf(NotFoundError);
    const stranger = new OpenAI({ baseURL: `${stack.http}/v1`, apiKey: "wrong", maxRetries: 0 });
    const refused = await stranger.models.list().catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(AuthenticationError);
  });
});
