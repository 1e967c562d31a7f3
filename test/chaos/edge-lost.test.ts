import { expect, test } from "vitest";

import { brief, chat, startStreams } from "../support/chat.ts";
import { startStack } from "../support/stack.ts";

const STREAMS = 50;

test("an Edge killed under 50 streams: every client is cut, the provider's work stops, the Node serves the next one by itself", async () => {
  await using stack = await startStack({ capacity: STREAMS + 1 });
  const { provider } = stack;
  const { ends } = await startStreams(stack, STREAMS);
  const early = chat(stack, { fail: "hang", at: "headers" });
  await provider.when(({ hanging }) => hanging === STREAMS + 1, AbortSignal.timeout(10_000));

  const { completed } = provider.state();
  stack.edge.signal("SIGKILL");
  expect(await ends).toEqual(Array(STREAMS).fill("200 cut"));
  expect(brief(await early)).toBe("no response");
  await provider.when(({ active_requests }) => active_requests === 0, AbortSignal.timeout(5_000));
  expect(provider.state()).toMatchObject({ aborted: STREAMS + 1, completed, cut: 0 });

  await stack.node.logged("will dial again", 2);
  await stack.startEdge();
  await stack.connected();
  await stack.idle();
  expect(stack.node.log().split('"msg":"disconnected"')).toHaveLength(2);
  const again = await Promise.all(Array.from({ length: STREAMS }, () => chat(stack)));
  expect(again.map(brief)).toEqual(Array(STREAMS).fill("200 whole"));
  await stack.idle();
  expect(provider.state()).toMatchObject({ completed: completed + STREAMS, aborted: STREAMS + 1 });
});
