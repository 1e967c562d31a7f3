import type { EdgeFile } from "./edge-schema.ts";

/** How a server of this kind is spoken to. */
export interface ProtocolProfile {
  readonly driver: "openai_chat";
  readonly auth?: { readonly header: string; readonly scheme?: string };
  /** Operation to path. */
  readonly operations: Readonly<Record<string, string>>;
  readonly capabilities: readonly string[];
  readonly extensions: Readonly<Record<string, boolean>>;
}

/** Profiles that need no entry in edge.yaml. */
export const builtInProfiles: ReadonlyMap<string, ProtocolProfile> = new Map([
  [
    "openai-chat",
    {
      driver: "openai_chat",
      auth: { header: "authorization", scheme: "Bearer" },
      operations: { chat_completions: "/v1/chat/completions", models: "/v1/models" },
      capabilities: ["chat", "streaming", "tools"],
      extensions: {},
    },
  ],
]);

const empty: ProtocolProfile = { driver: "openai_chat", operations: {}, capabilities: [], extensions: {} };

/** A profile of the file over the built-in one of that name; what the file gives replaces, key by key. */
export function resolveProfile(name: string, given: EdgeFile["protocol_profiles"][string]): ProtocolProfile {
  const base = builtInProfiles.get(name) ?? empty;
  const auth = given.auth ?? base.auth;
  return {
    driver: given.driver ?? base.driver,
    ...(auth === undefined
      ? {}
      : {
          auth: {
            header: auth.header.toLowerCase(),
            ...(auth.scheme === undefined ? {} : { scheme: auth.scheme }),
          },
        }),
    operations: given.operations ?? base.operations,
    capabilities: given.capabilities ?? base.capabilities,
    extensions: given.extensions ?? base.extensions,
  };
}
