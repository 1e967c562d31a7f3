import type { NodeListeners, NodeProviderStatus, NodeStatus } from "@iop/node-core";
import { BoundedLabel, OTHER, addProcessMetrics } from "@iop/reference-host";
import { Counter, Gauge, Histogram, Registry } from "prom-client";

const HEALTH: Readonly<Record<NodeProviderStatus["health"], number>> = { offline: 0, degraded: 0.5, ok: 1 };
/** From what a cached answer takes to the longest agent runs, in seconds. */
const DURATION_BUCKETS = [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800];

/** A Node's metrics, in a registry of their own. */
export interface NodeMetrics {
  /** What counts; to be called beside a host's own listeners. */
  readonly on: Required<Pick<NodeListeners, "ready" | "retry" | "tunnel">>;
  /** Prometheus' text format: https://prometheus.io/docs/instrumenting/exposition_formats/ */
  text(): Promise<{ readonly contentType: string; readonly text: string }>;
}

/** `status` is asked at each scrape. */
export function createNodeMetrics(status: () => NodeStatus): NodeMetrics {
  const registry = new Registry();
  const registers = [registry];
  // The same place from src/ and from dist/.
  addProcessMetrics(registry, "node", new URL("../package.json", import.meta.url));
  const connected = new Gauge({
    name: "iop_node_connected",
    help: "1 while the Edge has this Node in service, else 0.",
    registers,
  });
  const sessions = new Counter({
    name: "iop_node_sessions_total",
    help: "How often the Edge has taken this Node into service.",
    registers,
  });
  const retries = new Counter({
    name: "iop_node_retries_total",
    help: "Attempts to connect that followed a failure or a lost session.",
    registers,
  });
  const running = new Gauge({
    name: "iop_node_tunnels",
    help: "Tunnels whose work has not ended.",
    registers,
  });
  const labelNames = ["provider"] as const;
  const health = new Gauge({
    name: "iop_node_provider_health",
    help: "1: ok, 0.5: degraded, 0: offline.",
    labelNames,
    registers,
  });
  const capacity = new Gauge({
    name: "iop_node_provider_capacity",
    help: "Requests at a time that this Node admits.",
    labelNames,
    registers,
  });
  const inFlight = new Gauge({
    name: "iop_node_provider_in_flight",
    help: "Requests that hold a place.",
    labelNames,
    registers,
  });
  const tunnels = new Counter({
    name: "iop_node_tunnels_total",
    help: "Tunnels that are over, by how they ended.",
    labelNames: ["provider", "outcome", "code"],
    registers,
  });
  const duration = new Histogram({
    name: "iop_node_tunnel_duration_seconds",
    help: "From a request's arrival until its provider's work had stopped.",
    labelNames,
    buckets: DURATION_BUCKETS,
    registers,
  });
  const codes = new BoundedLabel();
  // An Edge may name what this Node does not have.
  const known = (id: string): string => (status().providers.some((one) => one.id === id) ? id : OTHER);

  return {
    on: {
      ready: () => sessions.inc(),
      retry: () => retries.inc(),
      tunnel: ({ provider, outcome, code, durationMs }) => {
        const label = known(provider);
        tunnels.inc({ provider: label, outcome, code: code === undefined ? "" : codes.of(code) });
        duration.observe({ provider: label }, durationMs / 1000);
      },
    },
    text: async () => {
      const now = status();
      connected.set(now.connected ? 1 : 0);
      running.set(now.tunnels);
      for (const gauge of [health, capacity, inFlight]) gauge.reset();
      for (const { id: provider, ...state } of now.providers) {
        health.set({ provider }, HEALTH[state.health]);
        capacity.set({ provider }, state.maxConcurrency);
        inFlight.set({ provider }, state.inFlight);
      }
      return { contentType: registry.contentType, text: await registry.metrics() };
    },
  };
}
