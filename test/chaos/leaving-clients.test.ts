import { connect } from "node:net";
import { setTimeout } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";

import { brief, chat, forget } from "../support/chat.ts";
import { metric } from "../support/metric.ts";
import { MODEL, type Stack, startStack } from "../support/stack.ts";

const CLIENTS = 1_000;
const AT_ONCE = 40;
const CAPACITY = 4;
/** Longest stay of a client that leaves after a while, in milliseconds; an answer takes about half as long. */
const STAY_MS = 30;
const ALIAS = "alias";
/** Where each client leaves, and what it asks for, follows from it. */
const SEED = Number(process.env["IOP_TEST_SEED"] ?? 20_261_201);

let stack: Stack;
beforeAll(async () => {
  stack = await startStack({
    capacity: CAPACITY,
    adapt: (file) => ({
      ...file,
      models: {
        ...file.models,
        [ALIAS]: { candidates: [{ node: "node-1", provider: "p1", target: "iop-demo" }] },
      },
    }),
  });
});
afterAll(() => stack[Symbol.asyncDispose]());

/** When a client goes: after so many bytes of its request, of the response, or after so many milliseconds. */
type Leaves =
  | { readonly after: "sent"; readonly bytes: number }
  | { readonly after: "received"; readonly bytes: number }
  | { readonly after: "ms"; readonly ms: number };

/** https://en.wikipedia.org/wiki/Xorshift, from 0 to below 1. */
function random(seed: number): () => number {
  // Neighbouring seeds far apart, and none of them 0.
  let state = Math.imul(seed, 0x9e3779b1) | 1;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) / 2 ** 32;
  };
}

function request(next: () => number): Buffer {
  const long = next() < 0.2;
  const body = JSON.stringify({
    model: next() < 0.5 ? MODEL : ALIAS,
    stream: next() < 0.8,
    // Some do not fit into the first message on the wire.
    messages: [{ role: "user", content: "x".repeat(long ? 100_000 : 100) }],
    iop_test: { tokens: 12, tokens_per_second: 1_000, seed: Math.floor(next() * 1_000) },
  });
  return Buffer.from(
    [
      "POST /v1/chat/completions HTTP/1.1",
      `host: ${new URL(stack.http).host}`,
      `authorization: Bearer ${stack.apiKey}`,
      "content-type: application/json",
      `content-length: ${Buffer.byteLength(body)}`,
      "",
      body,
    ].join("\r\n"),
  );
}

function leaves(next: () => number, requestBytes: number): Leaves {
  const where = next();
  if (where < 0.2) return { after: "sent", bytes: Math.floor(next() * requestBytes) };
  if (where < 0.5) return { after: "received", bytes: Math.floor(next() * 3_000) };
  return { after: "ms", ms: next() * STAY_MS };
}

/** One client, from its connection to its leaving. */
async function visit(next: () => number): Promise<void> {
  const bytes = request(next);
  const how = leaves(next, bytes.length);
  const { hostname, port } = new URL(stack.http);
  const socket = connect({ host: hostname, port: Number(port) });
  const closed = new Promise<void>((resolve) => {
    socket.once("close", () => resolve());
  });
  socket.on("error", () => {});
  let received = 0;
  let said = "";
  socket.on("data", (chunk: Buffer) => {
    received += chunk.length;
    said += chunk.toString("latin1");
    // The last chunk of a body, or an answer with a length: there is no more to wait for.
    const over = said.endsWith("0\r\n\r\n") || said.includes("content-length");
    if (over || (how.after === "received" && received >= how.bytes)) socket.destroy();
  });
  socket.write(how.after === "sent" ? bytes.subarray(0, how.bytes) : bytes);
  if (how.after === "sent") socket.end();
  if (how.after === "ms") {
    await setTimeout(how.ms);
    socket.destroy();
  }
  await closed;
}

test(`${CLIENTS} clients that leave anywhere (seed ${SEED}): nothing is left, and the provider never has more than its capacity`, async () => {
  await forget(stack.providerUrl);
  let visits = 0;
  const visitor = async (): Promise<void> => {
    while (visits < CLIENTS) {
      visits++;
      await visit(random(SEED + visits));
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, visitor));
  await stack.idle();
  const { requests, completed, aborted, cut, max_active_requests: most } = stack.provider.state();
  expect(most).toBeLessThanOrEqual(CAPACITY);
  // They came to where it hurts: waiting, running, and over.
  expect(most).toBe(CAPACITY);
  expect(Math.min(CLIENTS - requests, completed, aborted)).toBeGreaterThan(CLIENTS / 20);
  expect(completed + aborted + cut).toBe(requests);
  // The Edge never counted on a place whose work had not stopped: its Node has refused nothing.
  const runs = await metric(stack, "iop_requests_total", 'provider="p1"');
  expect(await metric(stack, "iop_request_attempts_total")).toBe(runs);
  // Every place can be had again.
  const ends = await Promise.all(Array.from({ length: 2 * CAPACITY }, () => chat(stack)));
  expect(ends.map(brief)).toEqual(Array(2 * CAPACITY).fill("200 whole"));
  await stack.idle();
});
