import { create } from "@bufbuild/protobuf";
import type {
  Clock,
  Connection,
  FlowLimits,
  GoAway,
  HeartbeatSettings,
  NodeReadyRequest,
  RegisterRequest,
  SessionMessage,
  Timer,
} from "@iop/wire";
import {
  GoAwayCode,
  NodeReadyResponseSchema,
  RegisterCode,
  RegisterResponseSchema,
  Session,
  WireError,
  agreeFlowLimits,
} from "@iop/wire";

import type { Catalog } from "./catalog.ts";
import { ConfigDelivery } from "./config-delivery.ts";
import type { Configuration } from "./configuration.ts";
import { EdgeError } from "./edge-error.ts";
import type { WireTotals } from "./edge-snapshot.ts";
import type { NodeRecord } from "./node-record.ts";
import type { NodeRegistry, Owner } from "./node-registry.ts";
import { digestToken } from "./node-store.ts";
import type { ResourceLedger } from "./resource-ledger.ts";

/** The version of the wire contract that this Edge speaks. */
const PROTOCOL_VERSION = 1;
/** How long a connection may be unregistered, in milliseconds. */
const REGISTRATION_MS = 10_000;
/** How long a Node may take to apply its configuration, in milliseconds. */
const READY_MS = 30_000;
/** Longest frame before registration, in bytes: somebody without a token makes the Edge allocate no more. */
const UNREGISTERED_FRAME_BYTES = 64 * 1024;
/** How long an owner has to show a sign of life when another process claims its node, in milliseconds. */
const PROBE_MS = 1_000;
/** When a process should try again whose node another one is, in milliseconds: two of them must not take turns (transport.md §4.2). */
const DUPLICATE_RETRY_AFTER_MS = 60_000;
const REMOVED = "this node has been removed from the Edge's configuration";
/** When a Node that is turned away by a shutdown should try again, in milliseconds: what a restart takes. */
export const RETRY_AFTER_MS = 2_000;

/** What all sessions of an Edge share. */
export interface NodeSessionContext {
  readonly edgeName: string;
  readonly clock: Clock;
  readonly configuration: Configuration;
  readonly registry: NodeRegistry;
  readonly ledger: ResourceLedger;
  readonly flow: FlowLimits;
  readonly heartbeat: HeartbeatSettings;
  /** How long the work of a node that has been removed may go on, in milliseconds. */
  readonly drainTimeoutMs: number;
  /** Whether the Edge takes no new Nodes. */
  readonly draining: () => boolean;
  /** The session is over; once. */
  readonly closed: (session: NodeSession) => void;
}

interface Refusal {
  readonly code: RegisterCode;
  /** The same as an event's code. */
  readonly event: string;
  readonly reason: string;
  readonly retryable: boolean;
  /** When to try again at the earliest, in milliseconds; absent: as the Node is configured. */
  readonly retryAfterMs?: number;
}

/** One accepted connection, from its first byte: registration, readiness, status, end. */
export class NodeSession {
  readonly #context: NodeSessionContext;
  readonly #session: Session;
  #owner: Owner | undefined;
  /** The node whose owner this connection has challenged, until that is decided. */
  #challenged: string | undefined;
  /** Of a registered Node. */
  #delivery: ConfigDelivery | undefined;
  /** The revision that it was given with its registration. */
  #revision = 0n;
  #removed = false;
  #deadline: Timer;

  /** To be made in the turn in which the connection was handed out. */
  constructor(connection: Connection, context: NodeSessionContext) {
    this.#context = context;
    this.#session = new Session({
      connection,
      role: "edge",
      clock: context.clock,
      maxFrameBytes: UNREGISTERED_FRAME_BYTES,
      handlers: {
        message: (message) => this.#onMessage(message),
        goAway: (goAway) => this.#onGoAway(goAway),
        closed: (error) => this.#onClosed(error),
      },
    });
    this.#deadline = context.clock.setTimer(() => {
      this.close(GoAwayCode.REGISTRATION_TIMEOUT, `not registered within ${REGISTRATION_MS} ms`);
    }, REGISTRATION_MS);
  }

  /** Whether a registration was accepted. */
  get registered(): boolean {
    return this.#owner !== undefined;
  }

  /** Open streams. */
  get streams(): number {
    return this.#session.streams;
  }

  /** Messages that were ignored. */
  get counters(): WireTotals {
    return this.#session.counters;
  }

  /** Asks the Node to finish what runs and to expect nothing new. */
  drain(): void {
    this.#session.goAway(GoAwayCode.DRAINING, "the Edge is shutting down", RETRY_AFTER_MS);
  }

  /** The configuration has changed: passes it on to the Node, or drains one that is not configured any more. */
  reconfigure(): void {
    if (this.#owner === undefined || !this.#context.registry.isCurrent(this.#owner)) return;
    const { catalog } = this.#context.configuration;
    const node = catalog.node(this.#owner.node);
    if (node === undefined) void this.#remove(this.#owner);
    else this.#delivery?.want(catalog.configFor(node.record));
  }

  async #remove(owner: Owner): Promise<void> {
    if (this.#removed) return;
    this.#removed = true;
    this.#context.registry.drain(owner);
    this.#session.goAway(GoAwayCode.DRAINING, REMOVED, RETRY_AFTER_MS);
    const { promise: late, resolve } = Promise.withResolvers<void>();
    const timer = this.#context.clock.setTimer(resolve, this.#context.drainTimeoutMs);
    await Promise.race([this.#session.idle(), late]);
    timer.cancel();
    this.close(GoAwayCode.DRAINING, REMOVED);
  }

  /** Ends the connection with a word. Idempotent. */
  close(code: GoAwayCode, reason: string): void {
    this.#session.close(code, reason, code === GoAwayCode.DRAINING ? RETRY_AFTER_MS : 0);
  }

  #onMessage(message: SessionMessage): void {
    if (this.#challenged !== undefined) {
      this.close(GoAwayCode.PROTOCOL_ERROR, `${message.case} before the registration was answered`);
      return;
    }
    if (this.#owner === undefined) {
      if (message.case === "registerRequest") this.#register(message.value);
      else this.close(GoAwayCode.NOT_REGISTERED, `${message.case} before registration`);
      return;
    }
    switch (message.case) {
      case "nodeReadyRequest":
        this.#ready(this.#owner, message.value);
        return;
      case "providerStatus":
        // Of a Node that is not ready it changes nothing: its resources are of no generation yet.
        this.#context.ledger.report(this.#owner.node, this.#owner.generation, message.value);
        return;
      case "configRefreshResponse":
        this.#delivery?.answer(message.value);
        return;
      case "registerRequest":
      case "registerResponse":
      case "nodeReadyResponse":
      case "configRefreshRequest":
        this.close(GoAwayCode.PROTOCOL_ERROR, `unexpected ${message.case}`);
        return;
    }
  }

  #register(request: RegisterRequest): void {
    const record = this.#authenticate(request);
    if (record === undefined) return;
    const owner = this.#context.registry.owner(record.name);
    // The same process has dialled again: its old connection is dead, whether it has noticed or not.
    const moves = owner !== undefined && request.instanceId !== "" && owner.instanceId === request.instanceId;
    if (owner === undefined || moves) this.#accept(request, record, owner);
    else if (!this.#context.registry.challenge(record.name, this.#session))
      this.#refuseContested(record.name);
    else {
      this.#challenged = record.name;
      this.#challenge(request, owner).catch((error: unknown) => {
        this.#session.destroy(WireError.from(error, "protocol_error"));
      });
    }
  }

  /** Another process claims the node: it is a duplicate, unless the owner shows no sign of life. */
  async #challenge(request: RegisterRequest, owner: Owner): Promise<void> {
    const alive = await owner.session.probe(PROBE_MS);
    if (this.#session.error !== undefined) return;
    // Meanwhile the owner may have gone or moved, and the Edge have begun to drain.
    const record = this.#authenticate(request);
    if (record === undefined) return;
    const now = this.#context.registry.owner(record.name);
    if (now === undefined || (now === owner && !alive)) this.#accept(request, record, now);
    else this.#refuseDuplicate(now);
  }

  /** Makes this connection the pending owner, in place of `current`. In one turn: nothing comes in between. */
  #accept(request: RegisterRequest, record: NodeRecord, current: Owner | undefined): void {
    const { registry, ledger, configuration, clock, flow, heartbeat, edgeName } = this.#context;
    const { name } = record;
    let limits: FlowLimits;
    let config: ReturnType<Catalog["configFor"]>;
    try {
      limits = agreeFlowLimits(flow, request.limits);
      config = configuration.catalog.configFor(record);
    } catch (error) {
      this.#refuse(name, refusalOf(error));
      return;
    }
    if (current !== undefined) {
      const reason =
        current.instanceId === request.instanceId && request.instanceId !== ""
          ? "the same process has connected again"
          : "another process has taken the node over; this one did not answer";
      registry.supersede(current, reason);
      current.session.close(GoAwayCode.SUPERSEDED, reason, DUPLICATE_RETRY_AFTER_MS);
    }
    const owner = registry.claim(name, request.instanceId, this.#session);
    if (owner === undefined) {
      this.#refuseContested(name);
      return;
    }
    this.#challenged = undefined;
    this.#owner = owner;
    this.#revision = config.revision;
    this.#delivery = new ConfigDelivery({ owner, session: this.#session, registry, ledger, clock, config });
    this.#session.send({
      case: "registerResponse",
      value: create(RegisterResponseSchema, {
        accepted: true,
        nodeId: name,
        config,
        limits,
        edgeName,
        heartbeat,
      }),
    });
    this.#session.agree(limits, heartbeat);
    this.#deadline.cancel();
    this.#deadline = this.#context.clock.setTimer(() => {
      this.close(GoAwayCode.REGISTRATION_TIMEOUT, `not ready within ${READY_MS} ms`);
    }, READY_MS);
  }

  /** The record that the request proves to belong to; refuses it where it does not. */
  #authenticate(request: RegisterRequest): NodeRecord | undefined {
    const claimed = printable(request.nodeName);
    if (request.protocolVersion !== PROTOCOL_VERSION) {
      this.#refuse(claimed, {
        code: RegisterCode.UNSUPPORTED_VERSION,
        event: "unsupported_version",
        reason: `this Edge speaks version ${PROTOCOL_VERSION} of the wire, the Node version ${request.protocolVersion}`,
        retryable: false,
      });
      return undefined;
    }
    const record = this.#context.configuration.store.find(digestToken(request.token));
    if (record === undefined) {
      this.#refuse(claimed, {
        code: RegisterCode.UNKNOWN_TOKEN,
        event: "unknown_token",
        reason: "no node has this token",
        retryable: false,
      });
      return undefined;
    }
    if (request.nodeName !== record.name) {
      this.#refuse(claimed, {
        code: RegisterCode.NAME_MISMATCH,
        event: "name_mismatch",
        reason: `the token is that of another node than ${claimed}`,
        retryable: false,
      });
      return undefined;
    }
    if (this.#context.draining()) {
      this.#refuse(record.name, {
        code: RegisterCode.EDGE_DRAINING,
        event: "edge_draining",
        reason: "the Edge is shutting down",
        retryable: true,
        retryAfterMs: RETRY_AFTER_MS,
      });
      return undefined;
    }
    return record;
  }

  #refuseDuplicate({ node, draining }: Owner): void {
    this.#refuse(node, {
      code: RegisterCode.DUPLICATE_NODE,
      event: "duplicate_node",
      reason: `node ${node} is connected already, from another process`,
      retryable: true,
      // One that drains will soon be gone.
      retryAfterMs: draining ? RETRY_AFTER_MS : DUPLICATE_RETRY_AFTER_MS,
    });
  }

  /** Somebody else's claim is being decided. */
  #refuseContested(node: string): void {
    this.#refuse(node, {
      code: RegisterCode.DUPLICATE_NODE,
      event: "duplicate_node",
      reason: `another process is claiming node ${node}`,
      retryable: true,
      retryAfterMs: RETRY_AFTER_MS,
    });
  }

  #refuse(node: string, { code, event, reason, retryable, retryAfterMs = 0 }: Refusal): void {
    this.#session.send({
      case: "registerResponse",
      value: create(RegisterResponseSchema, {
        accepted: false,
        reason,
        code,
        retryable,
        retryAfterMs,
        edgeName: this.#context.edgeName,
      }),
    });
    this.close(code === RegisterCode.EDGE_DRAINING ? GoAwayCode.DRAINING : GoAwayCode.NOT_REGISTERED, reason);
    this.#context.registry.emit({ node, type: "refused", code: event, reason });
  }

  #ready(owner: Owner, request: NodeReadyRequest): void {
    const { registry } = this.#context;
    let problem: string | undefined;
    if (!registry.isCurrent(owner)) problem = "another connection has taken over";
    else if (request.nodeId !== owner.node) problem = "the node id is another one";
    else if (request.configRevision !== this.#revision)
      problem = "the configuration's revision is another one";
    else if (owner.state === "pending") {
      this.#deadline.cancel();
      registry.activate(owner, request.providers, this.#delivery?.ready());
    }
    this.#session.send({
      case: "nodeReadyResponse",
      value: create(NodeReadyResponseSchema, { ready: problem === undefined, reason: problem ?? "" }),
    });
    this.#delivery?.serve();
  }

  #onGoAway({ code }: GoAway): void {
    if (code === GoAwayCode.DRAINING && this.#owner !== undefined) this.#context.registry.drain(this.#owner);
  }

  #onClosed(error: WireError): void {
    const { registry } = this.#context;
    this.#deadline.cancel();
    this.#delivery?.end();
    if (this.#challenged !== undefined) registry.withdraw(this.#challenged, this.#session);
    if (this.#owner !== undefined) registry.disconnect(this.#owner, error.code, error.message);
    this.#context.closed(this);
  }
}

function refusalOf(error: unknown): Refusal {
  if (WireError.is(error) && error.code === "invalid_argument") {
    return {
      code: RegisterCode.UNSPECIFIED,
      event: "invalid_limits",
      reason: `the Node's limits are refused: ${error.message}`,
      retryable: false,
    };
  }
  return {
    code: RegisterCode.CONFIG_FAILED,
    event: "config_failed",
    reason: `no configuration could be made: ${EdgeError.is(error) ? error.message : "internal error"}`,
    retryable: true,
  };
}

/** What somebody without a token says of itself, fit for a log. */
function printable(text: string): string {
  return text.slice(0, 64).replace(/[^\x20-\x7e]/g, "?");
}
