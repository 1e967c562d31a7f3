import type { Clock, Connection, Listener, Transport } from "@iop/wire";
import { GoAwayCode } from "@iop/wire";

import type { ReloadResult } from "./configuration.ts";
import { Configuration } from "./configuration.ts";
import { Dispatcher } from "./dispatcher.ts";
import { EdgeError } from "./edge-error.ts";
import type { EdgeOptions, EdgeSettings, ReloadOptions } from "./edge-options.ts";
import { configurationSource, edgeSettings } from "./edge-options.ts";
import type { EdgeService, ModelInfo, ProviderTunnel, TunnelSubmission } from "./edge-service.ts";
import type { WireTotals } from "./edge-snapshot.ts";
import { edgeSnapshot } from "./edge-snapshot.ts";
import type { EdgeEvents } from "./event-bus.ts";
import { EventBus } from "./event-bus.ts";
import { NodeRegistry } from "./node-registry.ts";
import type { NodeSessionContext } from "./node-session.ts";
import { NodeSession } from "./node-session.ts";
import { Pool } from "./pool.ts";
import { ResourceLedger } from "./resource-ledger.ts";
import type { EdgeSnapshot } from "./snapshot.ts";

/** Connections that may be unregistered at a time; each is held for at most 10 s and 64 KiB. */
const MAX_UNREGISTERED = 256;

/** The process that callers talk to: Nodes dial in, requests go out to them. */
export interface Edge extends EdgeService, AsyncDisposable {
  readonly events: EdgeEvents;
  /**
   * Starts to accept Nodes; once. Aborting rejects with the signal's reason and leaves nothing behind.
   * @throws WireError `dial_failed` where the transport cannot listen; EdgeError `draining` after `close`.
   */
  listen(options?: { readonly signal?: AbortSignal | undefined }): Promise<{
    /** Where Nodes dial, as the transport says it: `127.0.0.1:7443`. */
    readonly address: string;
  }>;
  /**
   * Puts another configuration in the place of the present one, all at once. Running work is not touched. Models
   * and candidates hold from the next request on, tokens from the next registration. A connected Node is told
   * what has changed for it; a provider that is new or has changed gets work once its Node has accepted it. One
   * that is gone gets no new work; a node that is gone is drained, for at most `drainTimeoutMs` of the options.
   * @throws EdgeError `invalid_config`, naming the key, and then nothing has changed; `draining` after `close`.
   */
  reload(options: ReloadOptions): ReloadResult;
  /**
   * Shuts down: refuses what is new, lets what runs finish, then ends all connections. What still runs
   * after the timeout (milliseconds; default: `drainTimeoutMs` of the options) ends with
   * `node_disconnected`. Idempotent; the first call's timeout holds.
   */
  close(options?: { readonly drainTimeoutMs?: number }): Promise<void>;
}

/**
 * Makes an Edge; nothing happens until `listen`.
 * @throws EdgeError `invalid_config`, naming the key.
 */
export function createEdge(options: EdgeOptions): Edge {
  return new RunningEdge(options.transport, edgeSettings(options));
}

class RunningEdge implements Edge {
  readonly events: EventBus = new EventBus();
  readonly #transport: Transport;
  readonly #settings: EdgeSettings;
  readonly #clock: Clock;
  readonly #startedAt: number;
  readonly #configuration: Configuration;
  readonly #registry: NodeRegistry;
  readonly #pool: Pool;
  readonly #dispatcher: Dispatcher;
  readonly #context: NodeSessionContext;
  readonly #sessions = new Set<NodeSession>();
  /** Of the sessions that are over. */
  #wire: WireTotals = { unknownMessages: 0, lateMessages: 0 };
  #listening: Promise<Listener> | undefined;
  #closing: Promise<void> | undefined;
  #over = false;

  constructor(transport: Transport, settings: EdgeSettings) {
    const { clock, bodyBytes } = settings;
    const { events } = this;
    const ledger = new ResourceLedger(clock);
    this.#transport = transport;
    this.#settings = settings;
    this.#clock = clock;
    this.#startedAt = clock.now();
    this.#configuration = new Configuration(settings, { ledger, bodyBytes });
    this.#registry = new NodeRegistry({ ledger, events, clock });
    this.#pool = new Pool({ clock, settings: settings.queue, catalog: this.#configuration.catalog });
    ledger.watch(this.#pool);
    this.#dispatcher = new Dispatcher({
      configuration: this.#configuration,
      registry: this.#registry,
      pool: this.#pool,
      events,
      clock,
      bodyBytes,
    });
    this.#context = {
      edgeName: settings.name,
      clock,
      configuration: this.#configuration,
      registry: this.#registry,
      ledger,
      flow: settings.flow,
      heartbeat: settings.heartbeat,
      drainTimeoutMs: settings.drainTimeoutMs,
      draining: () => this.#closing !== undefined,
      closed: (session) => {
        this.#sessions.delete(session);
        this.#wire = sum(this.#wire, session.counters);
      },
    };
  }

  async listen(options: { readonly signal?: AbortSignal | undefined } = {}): Promise<{ address: string }> {
    const { signal } = options;
    signal?.throwIfAborted();
    if (this.#closing !== undefined) throw new EdgeError("draining", "the Edge is shut down");
    if (this.#listening !== undefined) throw new EdgeError("invalid_config", "the Edge listens already");
    this.#listening = this.#transport.listen({ accept: (connection) => this.#accept(connection) });
    try {
      const listener = await this.#listening;
      if (signal?.aborted === true) {
        await listener.close();
        throw signal.reason;
      }
      if (this.#closing !== undefined) throw new EdgeError("draining", "the Edge is shut down");
      return { address: listener.address };
    } catch (error) {
      this.#listening = undefined;
      throw error;
    }
  }

  submitProviderTunnel(submission: TunnelSubmission): Promise<ProviderTunnel> {
    return this.#dispatcher.submit(submission);
  }

  models(): readonly ModelInfo[] {
    return this.#configuration.catalog.models.map((model) => ({
      key: model.key,
      candidates: model.candidates.length,
      live: this.#dispatcher.live(model),
    }));
  }

  snapshot(): EdgeSnapshot {
    let streams = 0;
    let wire = this.#wire;
    for (const session of this.#sessions) {
      streams += session.streams;
      wire = sum(wire, session.counters);
    }
    const { name, mode } = this.#settings;
    return edgeSnapshot({
      edge: { name, mode, uptime_sec: Math.floor((this.#clock.now() - this.#startedAt) / 1000) },
      configuration: this.#configuration,
      registry: this.#registry,
      dispatcher: this.#dispatcher,
      pool: this.#pool,
      streams,
      wire,
    });
  }

  reload(options: ReloadOptions): ReloadResult {
    if (this.#closing !== undefined) throw new EdgeError("draining", "the Edge is shutting down");
    const result = this.#configuration.replace(configurationSource(options));
    this.#pool.reconfigure(this.#configuration.catalog, () => {
      for (const session of this.#sessions) session.reconfigure();
    });
    return result;
  }

  close(options: { readonly drainTimeoutMs?: number } = {}): Promise<void> {
    this.#closing ??= this.#drain(options.drainTimeoutMs ?? this.#settings.drainTimeoutMs);
    return this.#closing;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #drain(timeoutMs: number): Promise<void> {
    const { promise: idle, resolve } = Promise.withResolvers<void>();
    this.#dispatcher.drain(resolve);
    for (const session of this.#sessions) if (session.registered) session.drain();
    const timer = this.#clock.setTimer(resolve, timeoutMs);
    await idle;
    timer.cancel();
    this.#over = true;
    for (const session of this.#sessions) session.close(GoAwayCode.DRAINING, "the Edge is shutting down");
    const listener = await this.#listening?.catch(() => undefined);
    await listener?.close();
  }

  #accept(connection: Connection): void {
    const session = new NodeSession(connection, this.#context);
    let unregistered = 0;
    for (const other of this.#sessions) if (!other.registered) unregistered++;
    this.#sessions.add(session);
    if (this.#over) session.close(GoAwayCode.DRAINING, "the Edge is shut down");
    else if (unregistered >= MAX_UNREGISTERED)
      session.close(GoAwayCode.TOO_MANY_CONNECTIONS, `${unregistered} connections have not registered yet`);
  }
}

function sum(a: WireTotals, b: WireTotals): WireTotals {
  return {
    unknownMessages: a.unknownMessages + b.unknownMessages,
    lateMessages: a.lateMessages + b.lateMessages,
  };
}
