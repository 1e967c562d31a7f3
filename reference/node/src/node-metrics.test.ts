import type { NodeStatus, NodeTunnelOutcome } from "@iop/node-core";
import { expect, it } from "vitest";
import { createNodeMetrics } from "./node-metrics.ts";

const provider = { id: "p", health: "ok", reason: "", maxConcurrency: 4, inFlight: 2 } as const;
const outcome: NodeTunnelOutcome = {
  requestId: "r",
  provider: "p",
  operation: "chat_completions",
  outcome: "completed",
  durationMs: 1_500,
};

it("shows the Node of the moment and counts what has ended", async () => {
  let status: NodeStatus = {
    connected: true,
    providers: [provider, { ...provider, id: "q", health: "degraded" }],
    tunnels: 2,
  };
  const metrics = createNodeMetrics(() => status);
  const ours = async (): Promise<string[]> => {
    const { contentType, text } = await metrics.text();
    expect(contentType).toMatch(/^text\/plain; version=0\.0\.4/);
    return text.split("\n").filter((line) => /^iop_node_(?!.*_(bucket|sum)\{)/.test(line));
  };
  metrics.on.ready({ node: "n", edge: "e", remote: "", providers: [] });
  metrics.on.retry({ attempt: 1, delayMs: 1, reason: "" });
  metrics.on.retry({ attempt: 2, delayMs: 1, reason: "" });
  metrics.on.tunnel(outcome);
  metrics.on.tunnel({ ...outcome, provider: "q", outcome: "error", code: "idle_timeout" });
  metrics.on.tunnel({ ...outcome, provider: "made up", outcome: "error", code: "unknown_provider" });
  metrics.on.tunnel({ ...outcome, provider: "made up, too", outcome: "error", code: "unknown_provider" });
  expect(await ours()).toEqual([
    "iop_node_connected 1",
    "iop_node_sessions_total 1",
    "iop_node_retries_total 2",
    "iop_node_tunnels 2",
    'iop_node_provider_health{provider="p"} 1',
    'iop_node_provider_health{provider="q"} 0.5',
    'iop_node_provider_capacity{provider="p"} 4',
    'iop_node_provider_capacity{provider="q"} 4',
    'iop_node_provider_in_flight{provider="p"} 2',
    'iop_node_provider_in_flight{provider="q"} 2',
    'iop_node_tunnels_total{provider="p",outcome="completed",code=""} 1',
    'iop_node_tunnels_total{provider="q",outcome="error",code="idle_timeout"} 1',
    'iop_node_tunnels_total{provider="<other>",outcome="error",code="unknown_provider"} 2',
    'iop_node_tunnel_duration_seconds_count{provider="p"} 1',
    'iop_node_tunnel_duration_seconds_count{provider="q"} 1',
    'iop_node_tunnel_duration_seconds_count{provider="<other>"} 2',
  ]);
  status = { connected: false, providers: [], tunnels: 0 };
  const later = await ours();
  expect(later).toContain("iop_node_connected 0");
  expect(later.filter((line) => line.startsWith("iop_node_provider_"))).toEqual([]);
});
