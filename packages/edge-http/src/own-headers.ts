import type { QueueWait, RunDispatch } from "@iop/edge-core";

/** Why a request waited, or was not served: `busy`, or the code of the error. */
export const QUEUE_REASON = "x-iop-queue-reason";

/** Who served a request, as headers: name, value, name, value, …. */
export function attributionHeaders({ nodeId, providerId, target }: RunDispatch): string[] {
  return ["x-iop-node", text(nodeId), "x-iop-provider", text(providerId), "x-iop-target", text(target)];
}

/** How a request waited, as headers; none where it did not. */
export function queueHeaders({ position, waitedMs }: QueueWait, reason: string | undefined): string[] {
  if (position === 0) return [];
  return [
    ...(reason === undefined ? [] : [QUEUE_REASON, reason]),
    "x-iop-queue-position",
    String(position),
    "x-iop-queue-wait-ms",
    String(Math.round(waitedMs)),
  ];
}

/** Percent-encoded where HTTP could not carry it, or not unchanged. */
function text(name: string): string {
  return /^[!-~](?:[ -~]*[!-~])?$/.test(name) ? name : encodeURIComponent(name.toWellFormed());
}
