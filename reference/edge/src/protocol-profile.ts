import { BUILT_IN_PROFILES, type ProtocolProfile } from "@iop/edge-core";
import type { EdgeFile } from "./edge-schema.ts";

/** Profiles that need no entry in edge.yaml. */
export const builtInProfiles: ReadonlyMap<string, ProtocolProfile> = new Map(
  Object.entries(BUILT_IN_PROFILES),
);

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
