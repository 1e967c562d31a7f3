import type { ProfileDriver, ProviderConfig, RuntimeProfile } from "@iop/agent-runtime";
import type { ProviderConfig as WireProviderConfig, RuntimeProfile as WireRuntimeProfile } from "@iop/wire";
import type { EndpointAllowList } from "./endpoint-allow-list.ts";

/** What the Node's owner lets a configuration name. */
export interface Allowance {
  readonly endpoints: EndpointAllowList;
  readonly env: ReadonlySet<string>;
}

/** A configuration that may be used, or why it may not. */
export type CheckedProviderConfig =
  | { readonly config: ProviderConfig; readonly refusal?: undefined }
  | { readonly config?: undefined; readonly refusal: string };

/** Turns a provider's configuration as the Edge sent it into the runtime's, within what is allowed. */
export function checkProviderConfig(wire: WireProviderConfig, allow: Allowance): CheckedProviderConfig {
  if (wire.capacity < 1) return { refusal: "capacity must be at least 1" };
  if (wire.endpoint !== "" && !allow.endpoints.allows(wire.endpoint))
    return { refusal: `endpoint ${printable(wire.endpoint)} is not in this node's allow.endpoints` };
  if (wire.authEnv !== "" && !allow.env.has(wire.authEnv))
    return { refusal: `variable ${printable(wire.authEnv)} is not in this node's allow.env` };
  const profile = wire.profile === undefined ? undefined : toProfile(wire.profile);
  if (typeof profile === "string") return { refusal: profile };
  return {
    config: {
      id: wire.id,
      adapter: wire.adapter,
      ...(wire.endpoint === "" ? {} : { endpoint: wire.endpoint }),
      capacity: wire.capacity,
      ...(profile === undefined ? {} : { profile }),
      ...(wire.authEnv === "" ? {} : { authEnv: wire.authEnv }),
      firstByteTimeoutMs: wire.firstByteTimeoutMs,
      idleTimeoutMs: wire.idleTimeoutMs,
    },
  };
}

/** Whether both say the same; as `checkProviderConfig` made them. */
export function isSameConfig(a: ProviderConfig, b: ProviderConfig): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}

function toProfile(wire: WireRuntimeProfile): RuntimeProfile | string {
  const driver = toDriver(wire.driver);
  if (driver === undefined)
    return `profile ${printable(wire.name)}: unknown driver ${printable(wire.driver)}`;
  return {
    name: wire.name,
    driver,
    ...(wire.auth === undefined
      ? {}
      : {
          auth: {
            header: wire.auth.header,
            ...(wire.auth.scheme === "" ? {} : { scheme: wire.auth.scheme }),
          },
        }),
    operations: sorted(wire.operations),
    capabilities: [...wire.capabilities],
    extensions: sorted(wire.extensions),
  };
}

function toDriver(name: string): ProfileDriver | undefined {
  switch (name) {
    case "openai_chat":
    case "openai_responses":
    case "anthropic_messages":
      return name;
    default:
      return undefined;
  }
}

// A map has no order on the wire; comparing needs one.
function sorted<T>(map: Readonly<Record<string, T>>): Record<string, T> {
  return Object.fromEntries(Object.entries(map).sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** A name from the Edge, fit for a log line. An endpoint's user and password do not appear. */
function printable(text: string): string {
  const url = URL.parse(text);
  const shown = url === null ? text : `${url.protocol}//${url.host}`;
  return JSON.stringify(shown.slice(0, 200));
}
