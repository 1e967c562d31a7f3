import type {
  Connection,
  GoAway,
  NodeConfigPayload,
  OpeningMessage,
  ProviderStatus,
  WireStream,
} from "@iop/wire";
import { GoAwayCode, ProviderHealth, Session, WireError } from "@iop/wire";

import { pause } from "./deadline.ts";
import { NodeError } from "./node-error.ts";
import type { NodeProviderStatus } from "./node-listeners.ts";
import type { NodeSettings } from "./node-options.ts";
import type { ProviderSet } from "./provider-set.ts";
import type { AttemptEnd } from "./reconnect-policy.ts";
import type { Registration } from "./registration.ts";
import { readRegistration, registerRequest, RetryableFailure } from "./registration.ts";
import { refuse, type TunnelHandler } from "./tunnel-handler.ts";

/** How long the Edge may take to answer a registration, and then a ready, in milliseconds. */
const ANSWER_TIMEOUT_MS = 10_000;
/** How long work that was stopped may take to say so, in milliseconds; a provider has 2 s. */
const STOP_TIMEOUT_MS = 5_000;
/** For requests that crossed with our GoAway: they still get their refusal, in milliseconds. */
const CROSSING_MS = 100;
/**
 * How long to leave the node to the process that has taken it over, in milliseconds (transport.md §4.2: two
 * that take turns would never end). As with what an Edge asks for, ten intervals at most.
 */
const SUPERSEDED_MS = 60_000;
const DRAIN_REASON = "the node is shutting down";

/** How a session ended that did not fail for good. */
export type SessionEnd =
  | { readonly kind: "shutdown" }
  | ({ readonly kind: "lost"; readonly reason: string } & AttemptEnd);

export interface NodeSessionOptions {
  readonly settings: NodeSettings;
  readonly instanceId: string;
  readonly connection: Connection;
  readonly providers: ProviderSet;
  readonly tunnels: TunnelHandler;
  /** Local shutdown. */
  readonly signal: AbortSignal;
}

/** One connection to the Edge: registration, configuration, ready, work, end. */
export class NodeSession {
  readonly #settings: NodeSettings;
  readonly #instanceId: string;
  readonly #providers: ProviderSet;
  readonly #tunnels: TunnelHandler;
  readonly #shutdown: AbortSignal;
  readonly #session: Session;
  readonly #stop = new AbortController();
  #serving: Registration | undefined;
  /** The newest configuration that is not being applied yet. */
  #nextConfig: NodeConfigPayload | undefined;
  #refreshing: Promise<void> | undefined;
  #readyAt: number | undefined;
  #retryAfterMs = 0;

  /** Takes the connection over; to be called in the turn in which it was handed out. */
  constructor(options: NodeSessionOptions) {
    this.#settings = options.settings;
    this.#instanceId = options.instanceId;
    this.#providers = options.providers;
    this.#tunnels = options.tunnels;
    this.#shutdown = options.signal;
    this.#session = new Session({
      connection: options.connection,
      role: "node",
      clock: options.settings.clock,
      maxFrameBytes: options.settings.flow.maxFrameBytes,
      handlers: {
        message: (message) => {
          if (message.case === "configRefreshRequest") this.#reconfigure(message.value.config);
        },
        opened: (stream, opening) => this.#opened(stream, opening),
        goAway: (goAway) => this.#goAway(goAway),
        closed: (error) => this.#stop.abort(error),
      },
    });
  }

  /**
   * Runs the session to its end, a local shutdown included.
   * @throws NodeError where another attempt would fail again.
   */
  async run(): Promise<SessionEnd> {
    const shutdown = (): void => this.#stop.abort(this.#shutdown.reason);
    this.#shutdown.addEventListener("abort", shutdown);
    if (this.#shutdown.aborted) shutdown();
    try {
      await this.#start();
      await whenAborted(this.#stop.signal);
      return await this.#end();
    } catch (error) {
      // What the Edge said counts, even where it closed right behind it.
      const said = error instanceof RetryableFailure || NodeError.is(error);
      if (!said && this.#stop.signal.aborted) return await this.#end();
      this.#session.close(GoAwayCode.UNSPECIFIED, "the node gives up on this session");
      if (error instanceof RetryableFailure) return this.#failed(error.message, error.retryAfterMs);
      if (WireError.is(error)) return this.#failed(error.message);
      throw error;
    } finally {
      this.#shutdown.removeEventListener("abort", shutdown);
      // The next session applies a configuration of its own.
      await this.#refreshing;
    }
  }

  async #start(): Promise<void> {
    const { signal } = this.#stop;
    const answer = { timeoutMs: ANSWER_TIMEOUT_MS, signal };
    const value = registerRequest(this.#settings, this.#instanceId);
    const response = await this.#session.request(
      { case: "registerRequest", value },
      "registerResponse",
      answer,
    );
    const registration = readRegistration(response.value, this.#settings);
    this.#session.agree(registration.limits, registration.heartbeat);
    await this.#providers.apply(registration.config, { signal });
    // No turn between these: no change of a status is missed, and work may come at once.
    this.#serving = registration;
    const unsubscribe = this.#providers.onChange((status) => {
      this.#session.send({ case: "providerStatus", value: toWireStatus(status) });
    });
    signal.addEventListener("abort", unsubscribe);
    const ready = await this.#session.request(
      {
        case: "nodeReadyRequest",
        value: {
          $typeName: "iop.NodeReadyRequest",
          nodeId: registration.nodeId,
          configRevision: registration.config.revision,
          providers: this.#providers.statuses.map(toWireStatus),
        },
      },
      "nodeReadyResponse",
      answer,
    );
    if (!ready.value.ready) throw new RetryableFailure(`the edge refused the ready: ${ready.value.reason}`);
    this.#readyAt = this.#settings.clock.now();
    this.#settings.on.ready?.({
      node: registration.nodeId,
      edge: registration.edgeName,
      remote: this.#session.remote,
      providers: this.#providers.statuses,
    });
  }

  // One at a time and in order. Each is the whole configuration: one that is overtaken while it waits needs no answer.
  #reconfigure(config: NodeConfigPayload | undefined): void {
    if (config === undefined || this.#serving === undefined || this.#stop.signal.aborted) return;
    this.#nextConfig = config;
    this.#refreshing ??= this.#refresh();
  }

  async #refresh(): Promise<void> {
    const { signal } = this.#stop;
    try {
      for (let config = this.#takeConfig(); config !== undefined; config = this.#takeConfig()) {
        const { revision } = config;
        const providers = await this.#providers.apply(config, { signal, serving: this.#session.signal });
        this.#session.send({
          case: "configRefreshResponse",
          value: {
            $typeName: "iop.ConfigRefreshResponse",
            revision,
            providers: providers.map((outcome) => ({ $typeName: "iop.ProviderAcceptance", ...outcome })),
          },
        });
        this.#settings.on.reconfigured?.({ revision: Number(revision), providers });
      }
    } catch (error) {
      // With the session over or a shutdown begun it does not matter any more.
      if (!signal.aborted) this.#session.destroy(WireError.from(error, "closed"));
    } finally {
      this.#refreshing = undefined;
    }
  }

  #takeConfig(): NodeConfigPayload | undefined {
    const config = this.#nextConfig;
    this.#nextConfig = undefined;
    return config;
  }

  // The session is lost or the Node shuts down, at whatever stage it is.
  async #end(): Promise<SessionEnd> {
    const { error } = this.#session;
    if (error !== undefined && !this.#shutdown.aborted) return this.#lost(error);
    if (error === undefined) await this.#drain();
    return { kind: "shutdown" };
  }

  #lost(error: WireError): SessionEnd {
    const readyMs = this.#readyAt === undefined ? 0 : this.#settings.clock.now() - this.#readyAt;
    if (this.#readyAt !== undefined) this.#settings.on.disconnected?.({ reason: error.message });
    return { kind: "lost", reason: error.message, readyMs, retryAfterMs: this.#retryAfterMs };
  }

  #failed(reason: string, retryAfterMs = 0): SessionEnd {
    return { kind: "lost", reason, readyMs: 0, retryAfterMs: Math.max(retryAfterMs, this.#retryAfterMs) };
  }

  async #drain(): Promise<void> {
    this.#tunnels.close("node_draining", DRAIN_REASON);
    if (this.#serving !== undefined) {
      this.#session.goAway(GoAwayCode.DRAINING, DRAIN_REASON);
      const { drainTimeoutMs } = this.#settings;
      await pause(this.#settings.clock, Math.min(CROSSING_MS, drainTimeoutMs), this.#session.signal);
      await this.#streamsOver(drainTimeoutMs);
      this.#tunnels.stop("node_draining", DRAIN_REASON);
      await this.#streamsOver(STOP_TIMEOUT_MS);
    }
    this.#session.close(GoAwayCode.DRAINING, DRAIN_REASON);
  }

  async #streamsOver(ms: number): Promise<void> {
    const over = new AbortController();
    await Promise.race([this.#session.idle(), pause(this.#settings.clock, ms, over.signal)]);
    over.abort();
  }

  #opened(stream: WireStream, opening: OpeningMessage): void {
    if (this.#serving === undefined)
      refuse(stream, "node_not_ready", "work came before this node said that it is ready");
    else this.#tunnels.handle(stream, opening.value, this.#serving.bodyBytes);
  }

  // The connection stays: its streams may end. What follows, follows from its close.
  #goAway(goAway: GoAway): void {
    const least = goAway.code === GoAwayCode.SUPERSEDED ? SUPERSEDED_MS : 0;
    this.#retryAfterMs = Math.max(this.#retryAfterMs, goAway.retryAfterMs, least);
    if (goAway.code === GoAwayCode.DRAINING) this.#settings.on.edgeDraining?.({ reason: goAway.reason });
  }
}

const HEALTH: Readonly<Record<NodeProviderStatus["health"], ProviderHealth>> = {
  ok: ProviderHealth.OK,
  degraded: ProviderHealth.DEGRADED,
  offline: ProviderHealth.OFFLINE,
};

function toWireStatus(status: NodeProviderStatus): ProviderStatus {
  return {
    $typeName: "iop.ProviderStatus",
    id: status.id,
    health: HEALTH[status.health],
    maxConcurrency: status.maxConcurrency,
    inFlight: status.inFlight,
    reason: status.reason,
  };
}

async function whenAborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return;
  const { promise, resolve } = Promise.withResolvers<void>();
  signal.addEventListener("abort", () => resolve(), { once: true });
  await promise;
}
