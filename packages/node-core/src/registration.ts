import type {
  FlowLimits,
  HeartbeatSettings,
  NodeConfigPayload,
  RegisterRequest,
  RegisterResponse,
} from "@iop/wire";
import { agreeFlowLimits, DEFAULT_HEARTBEAT, RegisterCode } from "@iop/wire";

import { NodeError, type NodeErrorCode } from "./node-error.ts";
import type { NodeSettings } from "./node-options.ts";

/** The version of the wire contract that this Node speaks. */
const PROTOCOL_VERSION = 1;
/** Longest request body where the Edge names no limit, in bytes. */
const DEFAULT_BODY_BYTES = 32 * 1024 * 1024;
/** An Edge may set a heartbeat within these, in milliseconds. */
const SHORTEST_BEAT_MS = 100;
const LONGEST_WAIT_MS = 600_000;
const REASON_LENGTH = 500;

/** Refusals that no retry changes, unless the Edge says otherwise. */
const FATAL: ReadonlyMap<RegisterCode, NodeErrorCode> = new Map([
  [RegisterCode.UNKNOWN_TOKEN, "unknown_token"],
  [RegisterCode.UNSUPPORTED_VERSION, "unsupported_version"],
  [RegisterCode.NAME_MISMATCH, "name_mismatch"],
]);
/** Refusals that pass, whatever the Edge says. */
const PASSING: ReadonlySet<RegisterCode> = new Set([
  RegisterCode.DUPLICATE_NODE,
  RegisterCode.CONFIG_FAILED,
  RegisterCode.EDGE_DRAINING,
]);

/** What holds after an accepted registration. */
export interface Registration {
  readonly nodeId: string;
  readonly edgeName: string;
  readonly config: NodeConfigPayload;
  readonly limits: FlowLimits;
  readonly heartbeat: HeartbeatSettings;
  /** Longest request body, in bytes. */
  readonly bodyBytes: number;
}

/** A failure that may pass. */
export class RetryableFailure extends Error {
  override readonly name = "RetryableFailure";
  /** How long the Edge asked to wait, in milliseconds; 0: it did not. */
  readonly retryAfterMs: number;

  constructor(message: string, retryAfterMs = 0) {
    super(message);
    this.retryAfterMs = retryAfterMs;
  }
}

/** The first message of a connection. */
export function registerRequest(settings: NodeSettings, instanceId: string): RegisterRequest {
  return {
    $typeName: "iop.RegisterRequest",
    token: settings.token,
    nodeName: settings.name,
    instanceId,
    softwareVersion: settings.softwareVersion,
    protocolVersion: PROTOCOL_VERSION,
    features: [],
    limits: { $typeName: "iop.FlowLimits", ...settings.flow },
  };
}

/**
 * Reads the Edge's answer.
 * @throws NodeError where no retry would help; RetryableFailure for other refusals and answers that make no sense.
 */
export function readRegistration(response: RegisterResponse, settings: NodeSettings): Registration {
  if (!response.accepted) throw refusal(response);
  if (settings.edgeName !== undefined && response.edgeName !== settings.edgeName) {
    throw new NodeError(
      "edge_mismatch",
      `the edge that answered is ${shown(response.edgeName)}, not ${settings.edgeName}`,
    );
  }
  if (response.nodeId !== settings.name)
    throw new NodeError("name_mismatch", `the edge calls this node ${shown(response.nodeId)}`);
  const { config, heartbeat } = response;
  if (config === undefined) throw new RetryableFailure("the edge accepted without a configuration");
  return {
    nodeId: response.nodeId,
    edgeName: response.edgeName,
    config,
    limits: agreeFlowLimits(settings.flow, response.limits),
    heartbeat: heartbeat === undefined ? DEFAULT_HEARTBEAT : checkHeartbeat(heartbeat),
    bodyBytes: Math.min(settings.bodyBytes, Number(config.bodyBytes) || DEFAULT_BODY_BYTES),
  };
}

function refusal(response: RegisterResponse): NodeError | RetryableFailure {
  const { code, retryable, retryAfterMs } = response;
  const reason = `the edge refused: ${response.reason.slice(0, REASON_LENGTH)}`;
  if (retryable || PASSING.has(code)) return new RetryableFailure(reason, retryAfterMs);
  return new NodeError(FATAL.get(code) ?? "refused", reason);
}

function checkHeartbeat({ intervalMs, waitMs }: HeartbeatSettings): HeartbeatSettings {
  if (intervalMs < SHORTEST_BEAT_MS || waitMs <= intervalMs || waitMs > LONGEST_WAIT_MS)
    throw new RetryableFailure(`the edge wants a heartbeat each ${intervalMs} ms and a wait of ${waitMs} ms`);
  return { intervalMs, waitMs };
}

function shown(name: string): string {
  return JSON.stringify(name.slice(0, 100));
}
