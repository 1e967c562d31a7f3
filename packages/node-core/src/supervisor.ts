import { type Connection, WireError } from "@iop/wire";

import { pause, withDeadline } from "./deadline.ts";
import { NodeError } from "./node-error.ts";
import type { NodeSettings } from "./node-options.ts";
import { NodeSession, type SessionEnd } from "./node-session.ts";
import type { ProviderSet } from "./provider-set.ts";
import { ReconnectPolicy } from "./reconnect-policy.ts";
import type { TunnelHandler } from "./tunnel-handler.ts";

/** How long a dial may take, in milliseconds (transport.md §4.1). */
const DIAL_TIMEOUT_MS = 10_000;
/** The longest a timer takes, in milliseconds. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** What a Node's run consists of, across sessions. */
export interface Supervision {
  readonly settings: NodeSettings;
  readonly instanceId: string;
  /** Stopped at the end. */
  readonly providers: ProviderSet;
  readonly tunnels: TunnelHandler;
  /** Local shutdown. */
  readonly signal: AbortSignal;
}

/**
 * Keeps a Node in service: dial, session, wait, and again; one policy for whatever failed. Resolves once a
 * local shutdown has drained.
 * @throws NodeError where another attempt would fail again, and `exhausted`.
 */
export async function supervise({
  settings,
  instanceId,
  providers,
  tunnels,
  signal,
}: Supervision): Promise<void> {
  const policy = new ReconnectPolicy(settings);
  providers.onChange((status) => settings.on.provider?.(status));
  // The clock's timers let a process end; one that waits to dial again must not.
  const alive = setInterval(() => {}, LONGEST_TIMER_MS);
  try {
    while (!signal.aborted) {
      const end = await attempt({ settings, instanceId, providers, tunnels, signal });
      if (end.kind === "shutdown") return;
      const delayMs = policy.ended(end);
      if (delayMs === undefined)
        throw new NodeError("exhausted", `${settings.maxAttempts} attempts failed; the last: ${end.reason}`);
      if (signal.aborted) return;
      settings.on.retry?.({ attempt: policy.attempt, delayMs, reason: end.reason });
      await pause(settings.clock, delayMs, signal);
    }
  } finally {
    clearInterval(alive);
    await providers.stop();
  }
}

async function attempt(parts: Supervision): Promise<SessionEnd> {
  const { settings, signal } = parts;
  let connection: Connection;
  try {
    connection = await withDeadline(
      {
        clock: settings.clock,
        ms: DIAL_TIMEOUT_MS,
        signal,
        what: "dialling the edge",
        late: (late) => late.destroy(),
      },
      (inner) => settings.transport.dial({ signal: inner }),
    );
  } catch (error) {
    if (signal.aborted) return { kind: "shutdown" };
    const reason = error instanceof Error ? error.message : String(error);
    if (WireError.is(error) && error.code === "certificate_rejected")
      throw new NodeError("certificate_rejected", reason, { cause: error });
    return { kind: "lost", reason, readyMs: 0, retryAfterMs: 0 };
  }
  return new NodeSession({ ...parts, connection }).run();
}
