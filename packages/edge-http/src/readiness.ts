import type { EdgeService } from "@iop/edge-core";

/** Why an Edge could serve no request now; undefined where a ready node serves some model. */
export function unreadyReason(edge: Pick<EdgeService, "models" | "snapshot">): string | undefined {
  const models = edge.models();
  if (models.some((model) => model.live > 0)) return undefined;
  if (models.length === 0) return "no model is configured";
  return edge.snapshot().nodes.some((node) => node.connected)
    ? "no provider of any model is available"
    : "no node is connected";
}
