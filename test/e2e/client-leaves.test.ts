import { connect, type Socket } from "node:net";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";

import { MODEL, type Stack, startStack } from "../support/stack.ts";

let stack: Stack;
beforeAll(async () => {
  stack = await startStack();
});
afterEach(() => stack.idle());
afterAll(() => stack[Symbol.asyncDispose]());

/** A client that sends what it is told and can vanish. */
async function dial(): Promise<Socket> {
  const { hostname, port } = new URL(stack.http);
  const socket = connect({ host: hostname, port: Number(port) });
  await new Promise<void>((resolve) => {
    socket.once("connect", resolve);
  });
  return socket;
}

function chatRequest(
  behaviour: Readonly<Record<string, unknown>>,
  stream: boolean,
): { head: string; body: string } {
  const body = JSON.stringify({
    model: MODEL,
    messages: [{ role: "user", content: "x".repeat(1000) }],
    stream,
    iop_test: behaviour,
  });
  const head = [
    "POST /v1/chat/completions HTTP/1.1",
    `host: ${new URL(stack.http).host}`,
    `authorization: Bearer ${stack.apiKey}`,
    "content-type: application/json",
    `content-length: ${Buffer.byteLength(body)}`,
    "",
    "",
  ].join("\r\n");
  return { head, body };
}

/** Resolves once the socket has received something that contains `text`. */
async function receives(socket: Socket, text: string): Promise<void> {
  let received = "";
  const { promise, resolve } = Promise.withResolvers<void>();
  const listen = (chunk: Buffer): void => {
    received += chunk.toString("latin1");
    if (received.includes(text)) resolve();
  };
  socket.on("data", listen);
  await promise;
  socket.off("data", listen);
}

/** How long until the provider's request is gone, in milliseconds. */
async function leave(socket: Socket, requestsBefore: number): Promise<number> {
  const left = performance.now();
  socket.destroy();
  await stack.provider.when((state) => state.active_requests === 0, AbortSignal.timeout(5_000));
  expect(stack.provider.state().requests).toBe(requestsBefore + 1);
  return performance.now() - left;
}

describe("a client that leaves", () => {
  test("before its request is dispatched: the provider hears nothing", async () => {
    const before = stack.provider.state().requests;
    const socket = await dial();
    const { head, body } = chatRequest({}, true);
    socket.write(head + body.slice(0, 100));
    // The Edge has read this much: it answers nothing, so the next exchange on another socket comes after it.
    await fetch(`${stack.http}/v1/models`, { headers: { authorization: `Bearer ${stack.apiKey}` } });
    socket.destroy();
    await stack.idle();
    expect(stack.provider.state().requests).toBe(before);
  });

  const points: ReadonlyArray<
    readonly [string, Readonly<Record<string, unknown>>, boolean, string | undefined]
  > = [
    ["before the response's headers", { fail: "hang", at: "headers" }, true, undefined],
    ["before the first token", { fail: "hang", at: "first_token" }, true, "HTTP/1.1 200"],
    ["in the middle of a stream", { fail: "hang", at: "middle", tokens: 40 }, true, "data: "],
    ["of a stream that goes on", { tokens: 100_000, tokens_per_second: 500 }, true, "data: "],
    ["while it waits for a whole body", { fail: "hang", at: "middle", tokens: 40 }, false, undefined],
  ];
  test.each(points)("%s: the provider's socket closes within 1 s", async (_, behaviour, stream, seen) => {
    const { requests, aborted } = stack.provider.state();
    const socket = await dial();
    const { head, body } = chatRequest(behaviour, stream);
    const arrived = seen === undefined ? undefined : receives(socket, seen);
    socket.write(head + body);
    await stack.provider.when((state) => state.active_requests === 1, AbortSignal.timeout(5_000));
    if (behaviour["fail"] === "hang")
      await stack.provider.when((state) => state.hanging === 1, AbortSignal.timeout(5_000));
    await arrived;
    expect(await leave(socket, requests)).toBeLessThan(1_000);
    expect(stack.provider.state().aborted).toBe(aborted + 1);
  });
});
