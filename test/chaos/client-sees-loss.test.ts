import OpenAI, { APIConnectionError, APIError } from "openai";
import { describe, expect, test } from "vitest";

import { MODEL, startStack } from "../support/stack.ts";

const STREAMS = 50;

/** What the `openai` package makes of it: `a clean end`, or the error that it throws. */
async function outcome(client: OpenAI, iop_test: Readonly<Record<string, unknown>>): Promise<unknown> {
  const body = {
    model: MODEL,
    messages: [{ role: "user" as const, content: "long" }],
    stream: true as const,
    iop_test,
  };
  try {
    for await (const _ of await client.chat.completions.create(body));
    return "a clean end";
  } catch (error) {
    return error;
  }
}

describe("what a client of the openai package sees", () => {
  test.each(["edge", "node"] as const)(
    "when the %s is killed under 50 streams and one request without an answer yet: an error each, no clean end",
    async (host) => {
      await using stack = await startStack({ capacity: STREAMS + 1 });
      const client = new OpenAI({ baseURL: `${stack.http}/v1`, apiKey: stack.apiKey, maxRetries: 0 });
      const begun = Array.from({ length: STREAMS }, () =>
        outcome(client, { fail: "hang", at: "middle", tokens: 20 }),
      );
      const early = outcome(client, { fail: "hang", at: "headers" });
      await stack.provider.when(({ hanging }) => hanging === STREAMS + 1, AbortSignal.timeout(10_000));

      // The Node has asked for the provider's health.
      const { completed } = stack.provider.state();
      stack[host].signal("SIGKILL");
      const errors = await Promise.all(begun);
      expect(errors.map((error) => error instanceof Error)).toEqual(Array(STREAMS).fill(true));
      const answer = await early;
      // A dead Edge says nothing; one that has lost its Node says so in OpenAI's shape.
      if (host === "edge") expect(answer).toBeInstanceOf(APIConnectionError);
      else {
        expect(answer).toBeInstanceOf(APIError);
        expect(answer).toMatchObject({ status: 502, code: "node_disconnected", type: "server_error" });
      }
      await stack.provider.when(({ active_requests }) => active_requests === 0, AbortSignal.timeout(5_000));
      expect(stack.provider.state()).toMatchObject({ aborted: STREAMS + 1, completed });
    },
  );
});
