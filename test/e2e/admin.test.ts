import { EventSourceParserStream } from "eventsource-parser/stream";
import { afterEach, expect, test } from "vitest";
import { z } from "zod";

import { MODEL, type Stack, startStack } from "../support/stack.ts";

let stack: Stack;
let admin: string;
afterEach(() => stack[Symbol.asyncDispose]());

async function start(): Promise<void> {
  stack = await startStack();
  admin = stack.edge.ready["admin"] ?? "";
}

function ask(behaviour: Readonly<Record<string, unknown>>, model = MODEL): Promise<Response> {
  return fetch(`${stack.http}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${stack.apiKey}` },
    body: JSON.stringify({
      model,
      stream: true,
      messages: [{ role: "user", content: "the prompt" }],
      stream_options: { include_usage: true },
      iop_test: behaviour,
    }),
  });
}

async function readiness(): Promise<unknown> {
  const response = await fetch(`${admin}/readyz`);
  return [response.status, await response.json()];
}

interface Event {
  readonly id?: string | undefined;
  readonly event?: string | undefined;
  readonly data: string;
}

/** The Edge's events from now on. */
async function events(): Promise<AsyncIterator<Event>> {
  const response = await fetch(`${admin}/api/events`);
  if (response.body === null) throw new Error("no body");
  const parsed = response.body
    .pipeThrough(new TextDecoderStream())
    .pipeThrough(new EventSourceParserStream());
  return parsed[Symbol.asyncIterator]();
}

async function next(from: AsyncIterator<Event>): Promise<unknown> {
  const { value, done } = await from.next();
  return done === true ? "ended" : { id: value.id, event: value.event, data: JSON.parse(value.data) };
}

const timed = z.object({ data: z.object({ first_byte_ms: z.number(), duration_ms: z.number() }) });

test("a Node's coming and going is in the events and in readiness", async () => {
  await start();
  expect(await readiness()).toEqual([200, { status: "ready" }]);
  const stream = await events();
  stack.node.signal("SIGKILL");
  expect(await next(stream)).toEqual({
    id: "2",
    event: "node",
    data: {
      node: "node-1",
      type: "disconnected",
      code: "connection_lost",
      reason: expect.any(String),
      at: expect.any(String),
    },
  });
  expect(await readiness()).toEqual([503, { status: "unready", reason: "no node is connected" }]);
});

test("a run is in the events and in the metrics, without its content", async () => {
  await start();
  const stream = await events();
  const text = await (await ask({ text: "the completion", tokens_per_second: 50 })).text();
  expect(text).toContain("completion");
  const run = await next(stream);
  expect(run).toMatchObject({
    event: "run",
    data: {
      model: MODEL,
      operation: "chat_completions",
      principal: "tester",
      node: "node-1",
      provider: "p1",
      target: "iop-demo",
      outcome: "completed",
      status: 200,
      usage: { output_tokens: 2 },
    },
  });
  const { data } = timed.parse(run);
  expect(data.first_byte_ms).toBeGreaterThan(0);
  expect(data.first_byte_ms).toBeLessThan(data.duration_ms);
  await (await ask({}, "nobody-has-this")).text();

  const metrics = await (await fetch(`${admin}/metrics`)).text();
  const labels = `model="${MODEL}",node="node-1",provider="p1"`;
  for (const line of [
    `iop_requests_total{${labels},outcome="completed",code=""} 1`,
    `iop_requests_total{model="<other>",node="",provider="",outcome="refused",code="model_not_found"} 1`,
    `iop_request_first_byte_seconds_count{${labels}} 1`,
    `iop_tokens_total{${labels},kind="output"} 2`,
    "iop_nodes_connected 1",
    'iop_provider_in_flight{node="node-1",provider="p1",class="normal"} 0',
    "iop_open_streams 0",
  ])
    expect(metrics.split("\n")).toContain(line);
  const relayed = /iop_relayed_bytes_total\{direction="response"\} (\d+)/.exec(metrics)?.[1];
  expect(Number(relayed)).toBe(Buffer.byteLength(text));
  expect(JSON.stringify(run) + metrics).not.toMatch(/the prompt|the completion/);
});

test("an Edge that drains says so, and its readers of events do not keep it", async () => {
  await start();
  const stream = await events();
  const response = await ask({ tokens: 20, tokens_per_second: 20 });
  stack.edge.signal("SIGTERM");
  let state = await readiness();
  while (JSON.stringify(state).includes('"ready"')) state = await readiness();
  expect(state).toEqual([503, { status: "unready", reason: "the Edge is shutting down" }]);
  expect(await response.text()).toContain("[DONE]");
  const last: unknown[] = [];
  for (let event = await next(stream); event !== "ended"; event = await next(stream)) last.push(event);
  expect(last).toHaveLength(2);
  expect(last).toContainEqual(
    expect.objectContaining({ event: "run", data: expect.objectContaining({ outcome: "completed" }) }),
  );
  expect(last).toContainEqual(
    expect.objectContaining({ event: "node", data: expect.objectContaining({ type: "disconnected" }) }),
  );
  expect(await stack.edge.exit).toMatchObject({ code: 0 });
  expect(stack.edge.log()).not.toContain("open handles");
});
