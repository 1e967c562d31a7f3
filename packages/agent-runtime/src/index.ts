// For hosts and adapters: the contract.
export type { Adapter, AdapterContext, ProviderConfig } from "./adapter.ts";
export { defineAdapter } from "./adapter.ts";
export type { CapacityPermit } from "./capacity-gate.ts";
export { CapacityGate } from "./capacity-gate.ts";
export type { ContentPart, ExecutionSpec, Message, Sampling, ToolDefinition } from "./execution-spec.ts";
export type { HeaderList } from "./header-list.ts";
export type {
  Provider,
  ProviderCapabilities,
  ProviderContext,
  ProviderHealth,
  TunnelRequest,
  TunnelResponse,
} from "./provider.ts";
export type { ProviderRegistryOptions, RegisteredProvider } from "./provider-registry.ts";
export { ProviderRegistry } from "./provider-registry.ts";
export type { RuntimeClock } from "./runtime-clock.ts";
export type { RuntimeErrorCode } from "./runtime-error.ts";
export { RuntimeError } from "./runtime-error.ts";
export type { FinishReason, RuntimeEvent } from "./runtime-event.ts";
export type { AuthScheme, ProfileDriver, RuntimeProfile } from "./runtime-profile.ts";
export type { Usage } from "./usage.ts";
