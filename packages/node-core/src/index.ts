// For hosts: a Node to embed.
export type { Node, NodeStatus } from "./node.ts";
export { createNode } from "./node.ts";
export type { NodeErrorCode } from "./node-error.ts";
export { NodeError } from "./node-error.ts";
export type { NodeListeners, NodeProviderStatus, NodeTunnelOutcome } from "./node-listeners.ts";
export type { NodeLimits, NodeOptions, ReconnectOptions } from "./node-options.ts";
