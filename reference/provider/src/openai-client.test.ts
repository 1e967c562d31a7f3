import OpenAI, { BadRequestError, InternalServerError, RateLimitError } from "openai";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createProvider } from "./provider.ts";

const provider = createProvider();
let client: OpenAI;

beforeAll(async () => {
  client = new OpenAI({ baseURL: `${await provider.listen()}/v1`, apiKey: "none", maxRetries: 0 });
});
afterAll(() => provider.close());

const request = {
  model: "iop-demo",
  messages: [{ role: "user" as const, content: "What is the weather?" }],
};

describe("the openai client", () => {
  it("reads a stream through its helper, usage included", async () => {
    const stream = client.chat.completions.stream({ ...request, stream_options: { include_usage: true } });
    const completion = await stream.finalChatCompletion();
    const whole = await client.chat.completions.create(request);
    expect(completion.choices[0]?.message.content).toBe(whole.choices[0]?.message.content);
    expect(completion.usage).toEqual(whole.usage);
  });

  it("reads tool calls through its helper", async () => {
    const stream = client.chat.completions.stream({
      ...request,
      tools: [
        {
          type: "function",
          function: {
            name: "weather",
            parameters: { type: "object", properties: { city: { type: "string" } } },
          },
        },
      ],
    });
    const message = await stream.finalMessage();
    const [call] = message.tool_calls ?? [];
    expect(call).toMatchObject({ type: "function", function: { name: "weather" } });
    expect(call?.type === "function" && JSON.parse(call.function.arguments)).toEqual({
      city: expect.any(String),
    });
  });

  it("lists models", async () => {
    const { data } = await client.models.list();
    expect(data.map(({ id }) => id)).toEqual(["iop-demo"]);
  });

  it.each([
    [400, BadRequestError],
    [429, RateLimitError],
    [500, InternalServerError],
  ])("sees status %i as its own error", async (status, kind) => {
    const sent = client.chat.completions.create(request, {
      headers: { "x-test": JSON.stringify({ status }) },
    });
    await expect(sent).rejects.toThrow(kind);
  });
});
