import type { Clock, FlowLimits, HeartbeatSettings, Transport } from "@iop/wire";
import { DEFAULT_FLOW_LIMITS, DEFAULT_HEARTBEAT, WireError, checkFlowLimits, realClock } from "@iop/wire";

import type { ConfigurationSource } from "./configuration.ts";
import { EdgeError } from "./edge-error.ts";
import type { NodeRecord } from "./node-record.ts";
import type { NodeStore } from "./node-store.ts";
import { memoryNodeStore } from "./node-store.ts";
import type { QueueSettings } from "./admission.ts";
import type { ProtocolProfile } from "./protocol-profile.ts";

/** One way to serve a model. */
export interface CandidateOptions {
  readonly node: string;
  readonly provider: string;
  /** Model name that the provider serves. */
  readonly target: string;
  /** Share of requests beside the model's other candidates. Default 1. */
  readonly weight?: number | undefined;
}

/** A model that callers can name. */
export interface ModelOptions {
  readonly key: string;
  /** At least one. The least loaded gets the next request; among equals they take turns. */
  readonly candidates: readonly CandidateOptions[];
}

/** What `createEdge` is given. */
export interface EdgeOptions {
  /** Told to Nodes and shown in the snapshot. */
  readonly name: string;
  /** Default `legacy`, the only mode. */
  readonly mode?: "legacy";
  /** Where Nodes dial in. */
  readonly transport: Transport;
  /** The nodes that may register: a list, or a store of one's own. */
  readonly nodes: readonly NodeRecord[] | NodeStore;
  /** By name; beside the built-in `openai-chat`, which an entry of that name replaces. */
  readonly profiles?: Readonly<Record<string, ProtocolProfile>>;
  readonly models: readonly ModelOptions[];
  /** Default: every 2 s, 5 s wait (spec rule 22). */
  readonly heartbeat?: HeartbeatSettings;
  readonly limits?: {
    /** Longest request body, in bytes. Default 32 MiB. */
    readonly bodyBytes?: number;
    /** Unacknowledged bytes of one stream; at least 64 KiB. Default 256 KiB. */
    readonly streamWindowBytes?: number;
    /** Bytes under way on one connection; at least 128 KiB. Default 1 MiB. */
    readonly connectionWindowBytes?: number;
  };
  /** How requests wait for a provider. */
  readonly queue?: Partial<QueueSettings>;
  /** How long `close` lets running requests finish, in milliseconds. Default 30,000. */
  readonly drainTimeoutMs?: number;
  /** Time. Default: real. */
  readonly clock?: Clock;
}

/** What `reload` is given: as in `EdgeOptions`, all of it. */
export type ReloadOptions = Pick<EdgeOptions, "nodes" | "profiles" | "models">;

/** The options with their defaults filled in, checked. */
export interface EdgeSettings extends ConfigurationSource {
  readonly name: string;
  readonly mode: "legacy";
  readonly heartbeat: HeartbeatSettings;
  readonly flow: FlowLimits;
  readonly bodyBytes: number;
  readonly queue: QueueSettings;
  readonly drainTimeoutMs: number;
  readonly clock: Clock;
}

const DEFAULT_BODY_BYTES = 32 * 1024 * 1024;
const DEFAULT_DRAIN_TIMEOUT_MS = 30_000;
const DEFAULT_QUEUE: QueueSettings = { timeoutMs: 60_000, maxWaiting: 1_000, offlineGraceMs: 0 };

/**
 * Fills in the defaults.
 * @throws EdgeError `invalid_config`, naming the key.
 */
export function edgeSettings(options: EdgeOptions): EdgeSettings {
  const { limits = {}, heartbeat = DEFAULT_HEARTBEAT } = options;
  const bodyBytes = limits.bodyBytes ?? DEFAULT_BODY_BYTES;
  if (!Number.isSafeInteger(bodyBytes) || bodyBytes < 1)
    throw new EdgeError("invalid_config", `limits.bodyBytes: ${bodyBytes} is not a positive number of bytes`);
  if (!(heartbeat.intervalMs > 0 && heartbeat.waitMs > heartbeat.intervalMs)) {
    throw new EdgeError(
      "invalid_config",
      `heartbeat: the wait (${heartbeat.waitMs} ms) must be longer than the interval (${heartbeat.intervalMs} ms), and both positive`,
    );
  }
  const drainTimeoutMs = options.drainTimeoutMs ?? DEFAULT_DRAIN_TIMEOUT_MS;
  if (!(drainTimeoutMs >= 0))
    throw new EdgeError(
      "invalid_config",
      `drainTimeoutMs: ${drainTimeoutMs} is not a number of milliseconds`,
    );
  return {
    name: options.name,
    mode: options.mode ?? "legacy",
    ...configurationSource(options),
    heartbeat,
    flow: flowLimits(limits),
    bodyBytes,
    queue: queueSettings(options.queue ?? {}),
    drainTimeoutMs,
    clock: options.clock ?? realClock,
  };
}

/** @throws EdgeError `invalid_config`, naming the key. */
export function configurationSource({ nodes, profiles, models }: ReloadOptions): ConfigurationSource {
  return {
    store: "records" in nodes ? nodes : memoryNodeStore(nodes),
    profiles: profiles ?? {},
    models,
  };
}

function queueSettings(given: Partial<QueueSettings>): QueueSettings {
  const queue = { ...DEFAULT_QUEUE, ...given };
  for (const name of ["timeoutMs", "maxWaiting", "offlineGraceMs"] as const) {
    if (!(Number.isFinite(queue[name]) && queue[name] >= 0))
      throw new EdgeError("invalid_config", `queue.${name}: ${queue[name]} is not a number of 0 or more`);
  }
  return queue;
}

function flowLimits(limits: NonNullable<EdgeOptions["limits"]>): FlowLimits {
  try {
    return checkFlowLimits({
      ...DEFAULT_FLOW_LIMITS,
      ...(limits.streamWindowBytes === undefined ? {} : { streamWindowBytes: limits.streamWindowBytes }),
      ...(limits.connectionWindowBytes === undefined
        ? {}
        : { connectionWindowBytes: limits.connectionWindowBytes }),
    });
  } catch (error) {
    if (!WireError.is(error)) throw error;
    throw new EdgeError("invalid_config", `limits.${error.message}`, { cause: error });
  }
}
