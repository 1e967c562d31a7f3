import { createProvider } from "@iop/reference-provider";
import { expect, test } from "vitest";

import { brief, chat, forget, header } from "../support/chat.ts";
import { MODEL, sha256, startStack } from "../support/stack.ts";

const TOKEN = "node-2's token";
const AS_NODE_2 = { token: TOKEN, nodeOptions: { name: "node-2" } };
const HANGS = { fail: "hang", at: "middle", tokens: 40 };

test("a Node that is killed and comes back while a request waits for it: one dispatch, one end, nothing left", async () => {
  await using second = createProvider();
  const endpoint = await second.listen();
  await using stack = await startStack({
    capacity: 1,
    adapt: (file) => ({
      ...file,
      nodes: [
        ...file.nodes,
        {
          name: "node-2",
          token: { sha256: sha256(TOKEN) },
          providers: [{ id: "p2", adapter: "openai-compat", endpoint, capacity: 1 }],
        },
      ],
      models: {
        [MODEL]: {
          candidates: [
            { node: "node-1", provider: "p1", target: "iop-demo" },
            { node: "node-2", provider: "p2", target: "iop-demo" },
          ],
        },
      },
    }),
  });
  await stack.startNode(AS_NODE_2);

  // Both are full, each with a stream.
  const running = [chat(stack, HANGS), chat(stack, HANGS)];
  const deadline = AbortSignal.timeout(5_000);
  for (const provider of [stack.provider, second])
    await provider.when(({ hanging }) => hanging === 1, deadline);
  for (const url of [stack.providerUrl, endpoint]) await forget(url);
  const waiting = chat(stack);
  await stack.waiting(1);

  stack.node.signal("SIGKILL");
  await stack.until(({ nodes }) => nodes[1]?.connected === false);
  // It was cut, and the one that waits got none of the dying node's places.
  const cut = await Promise.race(running);
  expect([brief(cut), header(cut, "x-iop-node")]).toEqual(["200 cut", "node-2"]);
  await stack.waiting(1);
  await second.when(({ active_requests }) => active_requests === 0, AbortSignal.timeout(5_000));
  expect(second.state()).toMatchObject({ requests: 0, aborted: 1 });

  await stack.startNode(AS_NODE_2);
  const end = await waiting;
  expect([brief(end), header(end, "x-iop-node"), header(end, "x-iop-provider")]).toEqual([
    "200 whole",
    "node-2",
    "p2",
  ]);
  // The new process has asked for the provider's health, once.
  expect(second.state()).toMatchObject({ requests: 2, completed: 2, active_requests: 0 });
  expect(stack.provider.state()).toMatchObject({ requests: 0, active_requests: 1 });

  stack.provider.release();
  expect((await Promise.all(running)).map(brief).toSorted()).toEqual(["200 cut", "200 whole"]);
  await stack.idle();
  const metrics = await (await fetch(`${stack.admin}/metrics`)).text();
  const samples = metrics.split("\n").filter((line) => line.startsWith("iop_requests_total{"));
  expect(samples.toSorted()).toEqual([
    `iop_requests_total{model="${MODEL}",node="node-1",provider="p1",outcome="completed",code=""} 1`,
    `iop_requests_total{model="${MODEL}",node="node-2",provider="p2",outcome="completed",code=""} 1`,
    `iop_requests_total{model="${MODEL}",node="node-2",provider="p2",outcome="error",code="node_disconnected"} 1`,
  ]);
  // Each request has one line in the access log.
  const id = header(end, "x-iop-request-id") ?? "";
  expect(stack.edge.log().split(`"request_id":"${id}"`)).toHaveLength(2);
});
