import { describe, expect, it } from "vitest";
import type { EdgeStatus } from "./edge-status.ts";
import { statusTable } from "./status-table.ts";

const now = Date.parse("2026-12-01T02:05:00Z");
const provider = {
  id: "vllm-a",
  status: "available",
  health: "ok",
  capacity: { configured: 8, effective: 8 },
  in_flight: { normal: 2, long: 1 },
  quarantined: 0,
};
const status: EdgeStatus = {
  edge: { name: "edge-1", mode: "legacy", uptime_sec: 90_061 },
  nodes: [
    {
      name: "gpu-1",
      connected: true,
      ready_since: "2026-12-01T00:00:00Z",
      round_trip_ms: 0.4,
      providers: [
        provider,
        {
          ...provider,
          id: "tired",
          health: "degraded",
          capacity: { configured: 8, effective: 7 },
          quarantined: 1,
        },
        {
          ...provider,
          id: "full",
          capacity: { configured: 4, effective: 4, long_effective: 2 },
          saturated: true,
        },
      ],
    },
    {
      name: "gpu-2",
      connected: false,
      providers: [
        {
          ...provider,
          id: "ollama",
          status: "unavailable",
          health: "offline",
          reason: "the node is not connected",
          capacity: { configured: 4, effective: 0 },
          in_flight: { normal: 0, long: 0 },
        },
      ],
    },
  ],
  models: [
    { key: "qwen3-32b", waiting: 2, candidates: 2, live: 1 },
    { key: "llama", waiting: 0, candidates: 1, live: 0 },
  ],
  streams: 3,
};

describe("the status table", () => {
  it("lines up in 80 columns", () => {
    expect(statusTable(status, { width: 80, now }).join("\n")).toBe(
      `
Edge edge-1 (legacy), up 1 d 1 h, 1 of 2 nodes, 9 in flight, 2 waiting

NODE / PROVIDER  STATE        IN USE
gpu-1            connected                for 2 h 5 min, round trip 0.4 ms
  vllm-a         ok           3 of 8
  tired          degraded     3 of 7      capacity lowered from 8; 1 in quarant…
  full           ok           3 of 4      full, says its Node; 1 of 2 long
gpu-2            offline
  ollama         offline      0 of 0      the node is not connected

MODEL            LIVE         WAITING
qwen3-32b        1 of 2       2
llama            0 of 1       0           unavailable`.slice(1),
    );
  });

  it("never gets wider, whatever names and reasons are, nor lets them move the cursor", () => {
    const long = "\u001b[2J\u202e" + "x".repeat(300);
    const lines = statusTable(
      {
        ...status,
        edge: { ...status.edge, name: long },
        nodes: status.nodes.map((node) => ({
          ...node,
          name: long,
          providers: node.providers.map((one) => ({ ...one, id: long, reason: long })),
        })),
        models: [{ key: long, waiting: 1, candidates: 1, live: 0 }],
      },
      { width: 80, now },
    );
    for (const line of lines) {
      expect(line.length).toBeLessThanOrEqual(80);
      expect(line).not.toMatch(/\p{C}/u);
    }
  });

  it("says where there is nothing", () => {
    const lines = statusTable({ ...status, nodes: [], models: [] }, { width: 80, now });
    expect(lines).toContain("no node is configured");
    expect(lines).toContain("no model is configured");
  });
});
