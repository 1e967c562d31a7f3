import { create, toBinary } from "@bufbuild/protobuf";
import { EnvelopeSchema, NodeReadyRequestSchema, RegisterRequestSchema } from "@iop/wire";
import { connect } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { jsonHeaders, rawRequest } from "../support/raw-http.ts";
import { MODEL, type Stack, startStack } from "../support/stack.ts";

let stack: Stack;
beforeAll(async () => {
  stack = await startStack();
});
afterAll(() => stack[Symbol.asyncDispose]());

type Message = Parameters<typeof create<typeof EnvelopeSchema>>[1];

function framed(envelope: Message): Uint8Array {
  const payload = toBinary(EnvelopeSchema, create(EnvelopeSchema, envelope));
  const frame = Buffer.alloc(4 + payload.length);
  frame.writeUInt32BE(payload.length);
  frame.set(payload, 4);
  return frame;
}

/** Writes `bytes` to the Node port and waits to be closed. What came back, and how long it took, in milliseconds. */
async function provoke(bytes: Uint8Array, dripMs?: number): Promise<{ said: string; tookMs: number }> {
  const started = performance.now();
  const socket = connect({ host: "127.0.0.1", port: stack.nodesPort });
  let said = "";
  socket.on("data", (chunk: Buffer) => {
    said += chunk.toString("latin1");
  });
  socket.on("error", () => {});
  let drip: NodeJS.Timeout | undefined;
  if (dripMs === undefined) socket.write(bytes);
  else {
    let at = 0;
    drip = setInterval(() => socket.write(bytes.subarray(at, ++at)), dripMs);
  }
  await new Promise<void>((resolve) => {
    socket.once("close", () => resolve());
  });
  clearInterval(drip);
  return { said, tookMs: performance.now() - started };
}

async function stillServes(): Promise<void> {
  const response = await rawRequest(`${stack.http}/v1/chat/completions`, {
    headers: jsonHeaders(stack.apiKey),
    body: JSON.stringify({ model: MODEL, messages: [{ role: "user", content: "still there?" }] }),
  });
  expect(response.status).toBe(200);
}

const register = framed({
  message: {
    case: "registerRequest",
    value: create(RegisterRequestSchema, { token: "wrong", nodeName: "node-1", protocolVersion: 1 }),
  },
});

describe("a peer on the Node port", () => {
  const rude: ReadonlyArray<readonly [string, Uint8Array, string]> = [
    ["a frame of length 0", Buffer.alloc(4), "length 0"],
    ["a frame of 4 GiB", Buffer.from([255, 255, 255, 255]), "the limit is 65536"],
    ["a frame over 64 KiB before registration", Buffer.from([0, 1, 0, 1]), "the limit is 65536"],
    ["HTTP", Buffer.from("GET / HTTP/1.1\r\nhost: x\r\n\r\n"), "the limit is 65536"],
    ["garbage in a frame", Buffer.from([0, 0, 0, 3, 0xff, 0xff, 0xff]), "undecodable"],
    [
      "work before registration",
      framed({
        message: { case: "nodeReadyRequest", value: create(NodeReadyRequestSchema, { nodeId: "node-1" }) },
      }),
      "before registration",
    ],
    [
      "a stream before registration",
      framed({ stream: 9, message: { case: "part", value: { last: true, data: Buffer.from("x") } } }),
      "registration",
    ],
    ["an unknown token", register, "token"],
  ];
  test.each(rude)("that sends %s is refused with the reason", async (_, bytes, reason) => {
    const { said, tookMs } = await provoke(bytes);
    expect(said).toContain(reason);
    expect(tookMs).toBeLessThan(2_000);
    await stillServes();
  });

  test("that says nothing, or drips a byte a second, is dropped after 10 s", async () => {
    const [silent, slow] = await Promise.all([provoke(new Uint8Array(0)), provoke(register, 1_000)]);
    for (const { tookMs } of [silent, slow]) {
      expect(tookMs).toBeGreaterThan(4_000);
      expect(tookMs).toBeLessThan(12_000);
    }
    await stillServes();
  }, 30_000);

  test("500 of them at once leave the Edge unharmed", async () => {
    const rounds = Array.from({ length: 500 }, (_, index) =>
      provoke(rude[index % rude.length]?.[1] ?? new Uint8Array(0)),
    );
    await stillServes();
    await Promise.all(rounds);
    await stillServes();
    await stack.idle();
  }, 30_000);
});
