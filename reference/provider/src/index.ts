export type { Behaviour } from "./behaviour.ts";
export { BEHAVIOUR_HEADER, behaviourSchema } from "./behaviour.ts";
export type { ProviderState } from "./counters.ts";
export type { Provider, ProviderOptions } from "./provider.ts";
export { createProvider } from "./provider.ts";
