import { RuntimeError, type AdapterContext, type ProviderConfig } from "@iop/agent-runtime";
import { isHeaderName, isHeaderValue } from "./header-syntax.ts";

/** The header that authenticates us at the provider. */
export interface Credential {
  /** In lower case. */
  readonly header: string;
  /** A secret: never logged, never in a message. */
  readonly value: string;
}

/**
 * The credential that `authEnv` names, presented as the profile says; undefined where `authEnv` is not set.
 * @throws RuntimeError `invalid_config`, `provider_unavailable`.
 */
export function readCredential(config: ProviderConfig, context: AdapterContext): Credential | undefined {
  const { authEnv, profile } = config;
  if (authEnv === undefined) return undefined;
  if (profile?.auth === undefined)
    throw new RuntimeError("invalid_config", "profile.auth: must say how to present the key of authEnv");
  const { header, scheme } = profile.auth;
  if (!isHeaderName(header) || (scheme !== undefined && !isHeaderName(scheme)))
    throw new RuntimeError("invalid_config", "profile.auth: header and scheme must each be one HTTP token");
  const key = context.env(authEnv);
  if (key === undefined)
    throw new RuntimeError("provider_unavailable", `variable ${authEnv} is not set, or not allowed here`);
  if (key === "" || key.trim() !== key || !isHeaderValue(key))
    throw new RuntimeError(
      "provider_unavailable",
      `variable ${authEnv} is empty, has space around it, or holds what a header cannot`,
    );
  return { header: header.toLowerCase(), value: scheme === undefined ? key : `${scheme} ${key}` };
}
