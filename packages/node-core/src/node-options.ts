import { type Adapter, ProviderRegistry, RuntimeError } from "@iop/agent-runtime";
import type { Clock, FlowLimits, Transport } from "@iop/wire";
import { checkFlowLimits, DEFAULT_FLOW_LIMITS, realClock } from "@iop/wire";

import { EndpointAllowList } from "./endpoint-allow-list.ts";
import { NodeError } from "./node-error.ts";
import type { NodeListeners } from "./node-listeners.ts";
import type { Allowance } from "./provider-config.ts";

/** Bounds of what an Edge can make this Node hold. */
export interface NodeLimits {
  /** Longest request body, in bytes, whatever the Edge's own limit is. Default 128 MiB. */
  readonly bodyBytes?: number;
  /** Request bodies held at once, together, in bytes; above it a request is refused. Default 512 MiB. */
  readonly heldBodyBytes?: number;
  /** What this Node offers for the connection; the lower of both sides' bounds holds. Default: the wire's. */
  readonly flow?: Partial<FlowLimits>;
}

/** How a Node comes back; the same for a dial that fails, a refusal that may pass and a lost session. */
export interface ReconnectOptions {
  /** Failed attempts in a row after which the Node gives up; 0: never. Default 10. */
  readonly maxAttempts?: number;
  /**
   * Wait between two attempts, in milliseconds, ±20 %. Over 0 where `maxAttempts` is 0. An Edge may ask for
   * up to ten times as much. Default 10,000.
   */
  readonly intervalMs?: number;
}

export interface NodeOptions {
  /** Reaches the Edge: `tcp({ host, port })` of `@iop/wire/tcp`. */
  readonly transport: Transport;
  /** The node's name; must equal the Edge's record of the token. */
  readonly name: string;
  /** Proves to the Edge which node this is. Never logged. */
  readonly token: string;
  /** The Edge's name; another one that answers is refused. Default: any. */
  readonly edgeName?: string;
  /** What drives the providers, one for each kind. */
  readonly adapters: readonly Adapter[];
  /** What a configuration that the Edge sends may name. What lies outside makes that provider unavailable. */
  readonly allow: {
    /** Origins: `http://HOST`, `http://HOST:PORT` or `http://HOST:*`; the same with https. */
    readonly endpoints: readonly string[];
    /** Names of environment variables. */
    readonly env: readonly string[];
  };
  /** Reads an environment variable: `(name) => process.env[name]`. Asked only for what `allow.env` lists. Default: none is set. */
  readonly env?: (name: string) => string | undefined;
  readonly reconnect?: ReconnectOptions;
  /** How long running work may go on after a shutdown has begun, in milliseconds. Default 30,000. */
  readonly drainTimeoutMs?: number;
  readonly limits?: NodeLimits;
  /** Told to the Edge, for people. */
  readonly softwareVersion?: string;
  /** Told what happens, for logs. */
  readonly on?: NodeListeners;
  /** Default: real time. */
  readonly clock?: Clock;
  /** From 0 to below 1; spreads the waits. Default `Math.random`. */
  readonly random?: () => number;
}

/** The options with defaults filled in, checked. */
export interface NodeSettings {
  readonly transport: Transport;
  readonly name: string;
  readonly token: string;
  readonly edgeName: string | undefined;
  readonly registry: ProviderRegistry;
  readonly allow: Allowance;
  readonly maxAttempts: number;
  readonly intervalMs: number;
  readonly drainTimeoutMs: number;
  readonly bodyBytes: number;
  readonly heldBodyBytes: number;
  readonly flow: FlowLimits;
  readonly softwareVersion: string;
  readonly on: NodeListeners;
  readonly clock: Clock;
  readonly random: () => number;
}

const MIB = 1024 * 1024;

/** @throws NodeError `invalid_options` that names the option. */
export function checkNodeOptions(options: NodeOptions): NodeSettings {
  const { reconnect = {}, limits = {} } = options;
  if (options.name === "") throw invalid("name is empty");
  if (options.token === "") throw invalid("token is empty");
  const maxAttempts = natural("reconnect.maxAttempts", reconnect.maxAttempts ?? 10);
  const intervalMs = natural("reconnect.intervalMs", reconnect.intervalMs ?? 10_000);
  if (maxAttempts === 0 && intervalMs === 0)
    throw invalid("reconnect.intervalMs must be over 0 where reconnect.maxAttempts is 0 (unlimited)");
  const allow = {
    endpoints: new EndpointAllowList(options.allow.endpoints),
    env: new Set(options.allow.env),
  };
  const { clock = realClock } = options;
  return {
    transport: options.transport,
    name: options.name,
    token: options.token,
    edgeName: options.edgeName,
    registry: registryOf(options, allow, clock),
    allow,
    maxAttempts,
    intervalMs,
    drainTimeoutMs: natural("drainTimeoutMs", options.drainTimeoutMs ?? 30_000),
    bodyBytes: natural("limits.bodyBytes", limits.bodyBytes ?? 128 * MIB),
    heldBodyBytes: natural("limits.heldBodyBytes", limits.heldBodyBytes ?? 512 * MIB),
    flow: flowLimits(limits.flow),
    softwareVersion: options.softwareVersion ?? "",
    on: options.on ?? {},
    clock,
    random: options.random ?? Math.random,
  };
}

function registryOf({ adapters, env }: NodeOptions, allow: Allowance, clock: Clock): ProviderRegistry {
  const context = { env: (name: string) => (allow.env.has(name) ? env?.(name) : undefined) };
  try {
    return new ProviderRegistry({ adapters, context, clock });
  } catch (error) {
    throw RuntimeError.is(error) ? invalid(error.message) : error;
  }
}

function flowLimits(flow: Partial<FlowLimits> = {}): FlowLimits {
  try {
    return checkFlowLimits({ ...DEFAULT_FLOW_LIMITS, ...flow });
  } catch (error) {
    throw new NodeError("invalid_options", `limits.flow: ${error instanceof Error ? error.message : ""}`, {
      cause: error,
    });
  }
}

function natural(name: string, value: number): number {
  if (!Number.isSafeInteger(value) || value < 0)
    throw invalid(`${name} is ${value}; it must be a whole number, at least 0`);
  return value;
}

function invalid(message: string): NodeError {
  return new NodeError("invalid_options", message);
}
