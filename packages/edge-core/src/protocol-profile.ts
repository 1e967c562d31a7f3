/** How a profile's credential is presented to the provider. */
export interface AuthScheme {
  /** Header that carries the credential, in lower case: `authorization`, `x-api-key`. */
  readonly header: string;
  /** Word before the credential, for example `Bearer`; absent: the bare credential. */
  readonly scheme?: string | undefined;
}

/** A protocol that providers speak: an entry of the profile catalog. Holds no secret. */
export interface ProtocolProfile {
  /** `openai_chat`, `openai_responses` or `anthropic_messages`. */
  readonly driver: string;
  readonly auth?: AuthScheme | undefined;
  /** Operation name to path, for example `chat_completions` to `/v1/chat/completions`. */
  readonly operations: Readonly<Record<string, string>>;
  readonly capabilities: readonly string[];
  readonly extensions?: Readonly<Record<string, boolean>> | undefined;
}

/** A profile as one provider uses it; made at run time only (spec rule 13). */
export interface RuntimeProfile extends ProtocolProfile {
  readonly name: string;
  readonly extensions: Readonly<Record<string, boolean>>;
}

/** Profiles that every catalog has unless it gives others of the same name. */
export const BUILT_IN_PROFILES: Readonly<Record<string, ProtocolProfile>> = {
  "openai-chat": {
    driver: "openai_chat",
    auth: { header: "authorization", scheme: "Bearer" },
    operations: { chat_completions: "/v1/chat/completions", models: "/v1/models" },
    capabilities: ["chat", "streaming", "tools"],
    extensions: {},
  },
};
