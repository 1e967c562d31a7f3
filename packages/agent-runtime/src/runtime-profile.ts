/** How a profile's credential is presented to the provider. */
export interface AuthScheme {
  /** Header that carries the credential, in lower case: `authorization`, `x-api-key`. */
  readonly header: string;
  /** Word before the credential, for example `Bearer`; absent: the bare credential. */
  readonly scheme?: string;
}

/** The protocol that a profile's server speaks. */
export type ProfileDriver = "openai_chat" | "openai_responses" | "anthropic_messages";

/** A protocol profile as the Edge resolved it from its catalog. Holds no secret. */
export interface RuntimeProfile {
  readonly name: string;
  readonly driver: ProfileDriver;
  readonly auth?: AuthScheme;
  /** Operation name to path, for example `chat_completions` to `/v1/chat/completions`. */
  readonly operations: Readonly<Record<string, string>>;
  readonly capabilities: readonly string[];
  readonly extensions: Readonly<Record<string, boolean>>;
}
