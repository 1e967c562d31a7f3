import { RuntimeError } from "@iop/agent-runtime";
import { expect, test } from "vitest";

import type { NodeTunnelOutcome } from "./node-listeners.ts";
import { runNode } from "./testing/running-node.ts";
import { bytes, respond, scriptedAdapter, untilAborted } from "./testing/scripted-adapter.ts";

test("the status follows the connection and the work", async () => {
  const { adapter } = scriptedAdapter({
    tunnel: (_request, { signal }) => untilAborted(signal),
  });
  const node = await runNode(adapter);
  expect(node.status()).toEqual({ connected: false, providers: [], tunnels: 0 });
  await node.edge.last.welcome([{ id: "p", capacity: 2 }]);
  expect(node.status()).toMatchObject({
    connected: true,
    providers: [{ id: "p", health: "ok", maxConcurrency: 2, inFlight: 0 }],
    tunnels: 0,
  });
  node.edge.last.open({ requestId: "r" }).read();
  await node.clock.settle();
  expect(node.status()).toMatchObject({ connected: true, providers: [{ inFlight: 1 }], tunnels: 1 });
  node.transport.links[0]?.cut();
  await node.clock.advance(5_000);
  expect(node.status()).toMatchObject({
    connected: false,
    providers: [{ id: "p", inFlight: 0 }],
    tunnels: 0,
  });
  await node.end();
  expect(node.status()).toEqual({ connected: false, providers: [], tunnels: 0 });
});

test("each tunnel that is over is told once, after its terminal, with its outcome", async () => {
  const outcomes: NodeTunnelOutcome[] = [];
  const { adapter } = scriptedAdapter({
    tunnel: (request, { signal }) => {
      if (request.requestId === "fails") throw new RuntimeError("provider_unreachable", "it failed");
      return request.requestId === "hangs" ? untilAborted(signal) : Promise.resolve(respond([bytes("x")]));
    },
  });
  const node = await runNode(adapter, { on: { tunnel: (outcome) => outcomes.push(outcome) } });
  await node.edge.last.welcome([{ id: "p", capacity: 3 }]);
  const hanging = node.edge.last.open({ requestId: "hangs" }).read();
  for (const requestId of ["works", "fails"]) node.edge.last.open({ requestId }).read();
  node.edge.last.open({ requestId: "lost", providerId: "nobody" }).read();
  await node.clock.advance(250);
  expect(hanging.ends).toEqual([]);
  hanging.stream.cancel("enough");
  await node.clock.advance(5_000);
  const of = { provider: "p", operation: "chat_completions" };
  expect(outcomes.map(({ durationMs, ...rest }) => ({ ...rest, takes: durationMs >= 250 }))).toEqual(
    expect.arrayContaining([
      { ...of, requestId: "works", outcome: "completed", takes: false },
      { ...of, requestId: "fails", outcome: "error", code: "provider_unreachable", takes: false },
      {
        ...of,
        requestId: "lost",
        provider: "nobody",
        outcome: "error",
        code: "unknown_provider",
        takes: false,
      },
      { ...of, requestId: "hangs", outcome: "cancelled", takes: true },
    ]),
  );
  expect(outcomes).toHaveLength(4);
  await node.end();
});
