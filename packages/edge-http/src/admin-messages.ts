import type { NodeEvent, RunOutcomeEvent } from "@iop/edge-core";

/** Longest code or reason that is passed on, in characters: a Node has written it. */
const MAX_TEXT = 512;

/** What `/api/events` says of a node's coming or going, field for field. */
export interface NodeMessage {
  readonly node: string;
  readonly type: NodeEvent["type"];
  readonly code?: string;
  readonly reason?: string;
  /** ISO 8601. */
  readonly at: string;
}

/** What `/api/events` says of a run that is over, field for field. Holds no content. */
export interface RunMessage {
  readonly request_id: string;
  readonly model: string;
  readonly operation: string;
  readonly principal?: string;
  readonly node: string;
  readonly provider: string;
  readonly target: string;
  readonly outcome: RunOutcomeEvent["outcome"];
  readonly code?: string;
  /** HTTP status of the provider. */
  readonly status?: number;
  /** As the provider reported it. */
  readonly usage?: {
    readonly input_tokens?: number;
    readonly output_tokens?: number;
    readonly reasoning_tokens?: number;
    readonly cached_input_tokens?: number;
  };
  /** How long it waited for a provider; part of the two below. */
  readonly queued_ms: number;
  /** Providers that were asked; all but the last refused it. */
  readonly attempts: number;
  readonly first_byte_ms?: number;
  readonly duration_ms: number;
  /** ISO 8601. */
  readonly at: string;
}

export function nodeMessage({ node, type, code, reason, at }: NodeEvent): NodeMessage {
  return { node, type, ...text("code", code), ...text("reason", reason), at };
}

export function runMessage(event: RunOutcomeEvent): RunMessage {
  const { dispatch, usage, firstByteMs } = event;
  return {
    request_id: event.requestId,
    model: event.model,
    operation: event.operation,
    ...(event.principal === undefined ? {} : { principal: event.principal }),
    node: dispatch.nodeId,
    provider: dispatch.providerId,
    target: dispatch.target,
    outcome: event.outcome,
    ...text("code", event.code),
    ...(event.status === undefined ? {} : { status: event.status }),
    ...(usage === undefined ? {} : { usage: tokens(usage) }),
    queued_ms: tenths(event.queuedMs),
    attempts: event.attempts,
    ...(firstByteMs === undefined ? {} : { first_byte_ms: tenths(firstByteMs) }),
    duration_ms: tenths(event.durationMs),
    at: event.at,
  };
}

function tokens(usage: NonNullable<RunOutcomeEvent["usage"]>): NonNullable<RunMessage["usage"]> {
  const { inputTokens, outputTokens, reasoningTokens, cachedInputTokens } = usage;
  return {
    ...(inputTokens === undefined ? {} : { input_tokens: inputTokens }),
    ...(outputTokens === undefined ? {} : { output_tokens: outputTokens }),
    ...(reasoningTokens === undefined ? {} : { reasoning_tokens: reasoningTokens }),
    ...(cachedInputTokens === undefined ? {} : { cached_input_tokens: cachedInputTokens }),
  };
}

function text<K extends "code" | "reason">(
  key: K,
  value: string | undefined,
): { readonly [P in K]?: string } {
  const named: { [P in "code" | "reason"]?: string } =
    value === undefined ? {} : { [key]: value.slice(0, MAX_TEXT) };
  return named;
}

function tenths(ms: number): number {
  return Math.round(ms * 10) / 10;
}
