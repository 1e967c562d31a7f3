import { createHash } from "node:crypto";
import { Agent, request } from "undici";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { chunksOf } from "../support/chunks.ts";
import { jsonHeaders } from "../support/raw-http.ts";
import { MODEL, type Stack, startStack } from "../support/stack.ts";

const STREAMS = 1_000;

let stack: Stack;
beforeAll(async () => {
  stack = await startStack({ capacity: STREAMS });
});
afterAll(() => stack[Symbol.asyncDispose]());

async function digestOf(
  url: string,
  apiKey: string,
  model: string,
  index: number,
  dispatcher: Agent,
): Promise<string> {
  const { statusCode, body } = await request(`${url}/v1/chat/completions`, {
    method: "POST",
    dispatcher,
    headers: jsonHeaders(apiKey),
    body: JSON.stringify({
      model,
      stream: true,
      messages: [{ role: "user", content: `stream number ${index}` }],
      // Each stops halfway, until all are there.
      iop_test: { tokens: 30 + (index % 17), fail: "hang", at: "middle" },
    }),
  });
  if (statusCode !== 200) throw new Error(`${statusCode}: ${await body.text()}`);
  const hash = createHash("sha256");
  for await (const chunk of chunksOf(body)) hash.update(chunk);
  return hash.digest("hex");
}

describe("one Node", () => {
  test("serves 1,000 streams at once, each with its own bytes", async () => {
    await using resources = new AsyncDisposableStack();
    const agent = resources.adopt(new Agent({ connections: null, pipelining: 1 }), (one) => one.destroy());
    const indexes = Array.from({ length: STREAMS }, (_, index) => index);
    const all = async (url: string, apiKey: string, model: string): Promise<string[]> => {
      const digests = Promise.all(indexes.map((index) => digestOf(url, apiKey, model, index, agent)));
      await Promise.race([stack.provider.when((state) => state.hanging === STREAMS), digests]);
      stack.provider.release();
      return digests;
    };
    const through = await all(stack.http, stack.apiKey, MODEL);
    expect(stack.provider.state().max_active_requests).toBe(STREAMS);
    const straight = await all(stack.providerUrl, "none", "iop-demo");
    expect(new Set(straight).size).toBe(STREAMS);
    expect(through).toEqual(straight);
    await stack.idle();
  }, 120_000);
});
