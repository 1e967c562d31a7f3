import { type Connection, WireError } from "@iop/wire";

import { pause, withDeadline } from "./deadline.ts";
import { NodeError } from "./node-error.ts";
import type { NodeSettings } from "./node-options.ts";
import { NodeSession, type SessionEnd } from "./node-session.ts";
import { ProviderSet } from "./provider-set.ts";
import { ReconnectPolicy } from "./reconnect-policy.ts";
import { TunnelHandler } from "./tunnel-handler.ts";

/** How long a dial may take, in milliseconds (transport.md §4.1). */
const DIAL_TIMEOUT_MS = 10_000;
/** The longest a timer takes, in milliseconds. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/**
 * Keeps a Node in service: dial, session, wait, and again; one policy for whatever failed. Resolves once a
 * local shutdown has drained.
 * @throws NodeError where another attempt would fail again, and `exhausted`.
 */
export async function supervise(
  settings: NodeSettings,
  instanceId: string,
  signal: AbortSignal,
): Promise<void> {
  const providers = new ProviderSet(settings);
  const tunnels = new TunnelHandler({ providers, heldBodyBytes: settings.heldBodyBytes });
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

async function attempt(parts: {
  readonly settings: NodeSettings;
  readonly instanceId: string;
  readonly providers: ProviderSet;
  readonly tunnels: TunnelHandler;
  readonly signal: AbortSignal;
}): Promise<SessionEnd> {
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
