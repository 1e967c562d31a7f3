import { create } from "@bufbuild/protobuf";
import type { Clock, Header } from "@iop/wire";
import { ProviderTunnelRequestSchema, WireError } from "@iop/wire";

import type { Candidate, CatalogModel } from "./catalog.ts";
import { operationPath } from "./catalog.ts";
import type { Configuration } from "./configuration.ts";
import { EdgeError } from "./edge-error.ts";
import type { ProviderTunnel, TunnelSubmission } from "./edge-service.ts";
import type { EventBus } from "./event-bus.ts";
import { invalidHeader } from "./header-check.ts";
import type { NodeRegistry, Owner } from "./node-registry.ts";
import { StreamTunnel } from "./provider-tunnel.ts";
import type { RelayedBytes } from "./relayed-bytes.ts";
import type { Lease } from "./resource-ledger.ts";

/** A body up to this length travels in the opening message, in bytes; most chat requests fit. */
const INLINE_BODY_BYTES = 8 * 1024;

interface Grant {
  readonly candidate: Candidate;
  readonly path: string;
  readonly owner: Owner;
  readonly lease: Lease;
}

/** Turns submissions into tunnels: selects, leases, sends. */
export class Dispatcher {
  readonly #configuration: Configuration;
  readonly #registry: NodeRegistry;
  readonly #events: EventBus;
  readonly #clock: Clock;
  readonly #bodyBytes: number;
  readonly #relayed: RelayedBytes = { request: 0, response: 0 };
  #active = 0;
  #draining = false;
  #idle: (() => void) | undefined;

  constructor(options: {
    readonly configuration: Configuration;
    readonly registry: NodeRegistry;
    readonly events: EventBus;
    readonly clock: Clock;
    readonly bodyBytes: number;
  }) {
    this.#configuration = options.configuration;
    this.#registry = options.registry;
    this.#events = options.events;
    this.#clock = options.clock;
    this.#bodyBytes = options.bodyBytes;
  }

  get relayed(): Readonly<RelayedBytes> {
    return this.#relayed;
  }

  /** Refuses everything new from here on; calls `idle` once, when nothing runs any more. */
  drain(idle: () => void): void {
    this.#draining = true;
    if (this.#active === 0) idle();
    else this.#idle = idle;
  }

  /** As `EdgeService.submitProviderTunnel`. */
  async submit(submission: TunnelSubmission): Promise<ProviderTunnel> {
    const startedAt = this.#clock.now();
    if (this.#draining) throw new EdgeError("draining", "the Edge is shutting down");
    if (submission.signal?.aborted === true) throw new EdgeError("cancelled", "withdrawn by the caller");
    const model = this.#configuration.catalog.model(submission.model);
    if (model === undefined) {
      throw new EdgeError(
        "unknown_model",
        `no model is named ${JSON.stringify(submission.model.slice(0, 256))}`,
      );
    }
    const wrong = invalidHeader(submission.headers ?? []);
    if (wrong !== undefined) throw new EdgeError("invalid_request", `header ${wrong} cannot be carried`);
    const grant = this.#select(model, submission.operation);
    try {
      return this.#open(submission, grant, startedAt);
    } catch (error) {
      grant.lease.release();
      throw WireError.is(error) ? openFailure(error, grant) : error;
    }
  }

  /** Candidates of a model that could be dispatched to now, full or not. */
  live(model: CatalogModel): number {
    let live = 0;
    for (const { provider, dispatch } of model.candidates) {
      const owner = this.#registry.dispatchable(dispatch.nodeId);
      if (owner !== undefined && provider.resource.live) live++;
    }
    return live;
  }

  /** The first live candidate with room, and a lease on it. */
  #select(model: CatalogModel, operation: string): Grant {
    let offered = false;
    let live = false;
    for (const candidate of model.candidates) {
      const { profile, resource } = candidate.provider;
      const path = operationPath(profile, operation);
      if (path === undefined) continue;
      offered = true;
      const owner = this.#registry.dispatchable(candidate.dispatch.nodeId);
      if (owner === undefined || !resource.live) continue;
      live = true;
      const lease = resource.acquire();
      if (lease !== undefined) return { candidate, path, owner, lease };
    }
    const name = JSON.stringify(model.key);
    if (live) throw new EdgeError("capacity_exhausted", `every provider of model ${name} is busy`);
    if (offered) throw new EdgeError("unavailable", `no provider of model ${name} is connected`);
    throw new EdgeError("unsupported_operation", `no provider of model ${name} offers ${operation}`);
  }

  #open(submission: TunnelSubmission, grant: Grant, startedAt: number): ProviderTunnel {
    const { candidate, owner, lease, path } = grant;
    const { provider, dispatch } = candidate;
    const { model, operation, principal, signal } = submission;
    const body = submission.buildBody(dispatch.target);
    const bodyLength = totalLength(body);
    if (bodyLength > this.#bodyBytes) {
      throw new EdgeError("body_too_large", `body of ${bodyLength} bytes; the limit is ${this.#bodyBytes}`);
    }
    const inline = bodyLength <= INLINE_BODY_BYTES;
    const requestId = submission.requestId ?? crypto.randomUUID();
    const request = create(ProviderTunnelRequestSchema, {
      requestId,
      providerId: dispatch.providerId,
      method: submission.method ?? "POST",
      path,
      headers: (submission.headers ?? []).map(([name, value]): Header => ({
        $typeName: "iop.Header",
        name,
        value,
      })),
      bodyLength: BigInt(bodyLength),
      firstByteTimeoutMs: provider.record.firstByteTimeoutMs,
      idleTimeoutMs: provider.record.idleTimeoutMs,
      target: dispatch.target,
      operation,
    });
    if (inline) request.body = joined(body, bodyLength);
    const tunnel = new StreamTunnel({
      session: owner.session,
      request,
      parts: inline ? [] : body,
      dispatch,
      lease,
      clock: this.#clock,
      signal,
      relayed: this.#relayed,
      stopped: this.#stopped,
      over: ({ outcome, code, status, usage, firstByteAt, endedAt }) => {
        this.#events.emit("run", {
          requestId,
          model,
          operation,
          ...(principal === undefined ? {} : { principal }),
          dispatch,
          outcome,
          ...(code === undefined ? {} : { code }),
          ...(status === undefined ? {} : { status }),
          ...(usage === undefined ? {} : { usage }),
          ...(firstByteAt === undefined ? {} : { firstByteMs: firstByteAt - startedAt }),
          durationMs: endedAt - startedAt,
          at: new Date(this.#clock.wallNow()).toISOString(),
        });
      },
    });
    this.#relayed.request += bodyLength;
    this.#active++;
    return tunnel;
  }

  readonly #stopped = (): void => {
    this.#active--;
    if (this.#active > 0) return;
    this.#idle?.();
    this.#idle = undefined;
  };
}

function openFailure(error: WireError, { candidate }: Grant): EdgeError {
  const { nodeId } = candidate.dispatch;
  switch (error.code) {
    case "too_many_streams":
      return new EdgeError("capacity_exhausted", `node ${nodeId} has as many streams as agreed`, {
        cause: error,
      });
    case "invalid_argument":
      return new EdgeError("invalid_request", "the request's headers are too long", { cause: error });
    default:
      return new EdgeError("unavailable", `the connection to node ${nodeId} was lost`, { cause: error });
  }
}

function totalLength(chunks: readonly Uint8Array[]): number {
  let length = 0;
  for (const chunk of chunks) length += chunk.length;
  return length;
}

function joined(chunks: readonly Uint8Array[], length: number): Uint8Array {
  const [first] = chunks;
  if (chunks.length === 1 && first !== undefined) return first;
  const body = new Uint8Array(length);
  let at = 0;
  for (const chunk of chunks) {
    body.set(chunk, at);
    at += chunk.length;
  }
  return body;
}
