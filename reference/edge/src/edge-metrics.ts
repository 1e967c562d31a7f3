import type { Edge } from "@iop/edge-core";
import type { MetricsText, RequestInfo } from "@iop/edge-http";
import { addProcessMetrics } from "@iop/reference-host";
import { Registry } from "prom-client";
import { RunMetrics } from "./run-metrics.ts";
import { addSnapshotMetrics } from "./snapshot-metrics.ts";

/** The Edge's metrics, in a registry of their own. */
export interface EdgeMetrics {
  /** Takes in a request of the HTTP surface that is over. */
  request(info: RequestInfo): void;
  /** Prometheus' text format: https://prometheus.io/docs/instrumenting/exposition_formats/ */
  text(): Promise<MetricsText>;
}

export function createEdgeMetrics(edge: Pick<Edge, "events" | "models" | "snapshot">): EdgeMetrics {
  const registry = new Registry();
  // The same place from src/ and from dist/.
  addProcessMetrics(registry, "edge", new URL("../package.json", import.meta.url));
  const runs = new RunMetrics(edge, registry);
  const show = addSnapshotMetrics(registry);
  return {
    request: (info) => runs.request(info),
    text: async () => {
      show(edge.snapshot());
      return { contentType: registry.contentType, text: await registry.metrics() };
    },
  };
}
