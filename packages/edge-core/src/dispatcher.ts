import { create } from "@bufbuild/protobuf";
import type { Clock, Header } from "@iop/wire";
import { ProviderTunnelRequestSchema, WireError } from "@iop/wire";

import { Affinity } from "./affinity.ts";
import type { CatalogModel } from "./catalog.ts";
import type { Configuration } from "./configuration.ts";
import { EdgeError } from "./edge-error.ts";
import type { ProviderTunnel, TunnelSubmission } from "./edge-service.ts";
import type { EventBus } from "./event-bus.ts";
import { invalidHeader } from "./header-check.ts";
import type { NodeRegistry, Owner } from "./node-registry.ts";
import type { AdmissionRequest, Grant, Ticket } from "./admission.ts";
import type { Pool } from "./pool.ts";
import { StreamTunnel } from "./provider-tunnel.ts";
import type { RelayedBytes } from "./relayed-bytes.ts";
import type { Resource } from "./resource.ts";

/** A body up to this length travels in the opening message, in bytes; most chat requests fit. */
const INLINE_BODY_BYTES = 8 * 1024;

/** How far a request has come. */
interface Progress {
  /** From 1. */
  readonly attempt: number;
  readonly startedAt: number;
}

/** Turns submissions into tunnels: waits for a provider, sends, and tries the next where nothing of it ran. */
export class Dispatcher {
  readonly #configuration: Configuration;
  readonly #registry: NodeRegistry;
  readonly #pool: Pool;
  readonly #events: EventBus;
  readonly #clock: Clock;
  readonly #bodyBytes: number;
  readonly #affinity = new Affinity();
  readonly #relayed: RelayedBytes = { request: 0, response: 0 };
  #active = 0;
  #draining = false;
  #idle: (() => void) | undefined;

  constructor(options: {
    readonly configuration: Configuration;
    readonly registry: NodeRegistry;
    readonly pool: Pool;
    readonly events: EventBus;
    readonly clock: Clock;
    readonly bodyBytes: number;
  }) {
    this.#configuration = options.configuration;
    this.#registry = options.registry;
    this.#pool = options.pool;
    this.#events = options.events;
    this.#clock = options.clock;
    this.#bodyBytes = options.bodyBytes;
  }

  get relayed(): Readonly<RelayedBytes> {
    return this.#relayed;
  }

  /** Refuses everything new and all who wait; calls `idle` once, when nothing runs any more. */
  drain(idle: () => void): void {
    this.#draining = true;
    this.#pool.close(new EdgeError("draining", "the Edge is shutting down"));
    if (this.#active === 0) idle();
    else this.#idle = idle;
  }

  /** As `EdgeService.submitProviderTunnel`. */
  async submit(submission: TunnelSubmission): Promise<ProviderTunnel> {
    if (this.#draining) throw new EdgeError("draining", "the Edge is shutting down");
    const wrong = invalidHeader(submission.headers ?? []);
    if (wrong !== undefined) throw new EdgeError("invalid_request", `header ${wrong} cannot be carried`);
    const { model, operation, signal, principal, session } = submission;
    const requestId = submission.requestId ?? crypto.randomUUID();
    const ticket = this.#pool.ticket();
    let refused: StreamTunnel | undefined;
    for (let attempt = 1; ; attempt++) {
      const request: AdmissionRequest = {
        model,
        operation,
        priority: submission.priority ?? 0,
        inputTokens: submission.inputTokens ?? 0,
        preferred: this.#preferred(submission),
        signal,
      };
      let grant: Grant;
      try {
        grant = await this.#pool.acquire(request, ticket);
      } catch (error) {
        if (refused === undefined || !EdgeError.is(error) || error.code !== "unavailable")
          throw this.#afterWait(error, ticket);
        // Nobody is left to ask: what the last one said is the answer.
        refused.accept();
        return refused;
      }
      const tunnel = this.#open(submission, requestId, grant, { attempt, startedAt: ticket.startedAt });
      if (tunnel === undefined) continue;
      await tunnel.begin();
      if (!tunnel.retryable) {
        if (session !== undefined) this.#affinity.remember(principal, session, grant.candidate.dispatch);
        tunnel.accept();
        return tunnel;
      }
      refused = tunnel;
    }
  }

  /** Candidates of a model that could be dispatched to now, full or not. */
  live(model: CatalogModel): number {
    return model.candidates.filter(({ provider }) => provider.resource.live).length;
  }

  /** Says of a request that waited how it did. */
  #afterWait(error: unknown, { position, startedAt }: Ticket): unknown {
    if (!EdgeError.is(error) || position === 0) return error;
    const queue = { position, waitedMs: this.#clock.now() - startedAt };
    return new EdgeError(error.code, error.message, { cause: error, queue });
  }

  #preferred({ model, principal, session }: TunnelSubmission): Resource | undefined {
    if (session === undefined) return undefined;
    const last = this.#affinity.recall(principal, session);
    if (last === undefined) return undefined;
    return this.#configuration.catalog
      .model(model)
      ?.candidates.find(
        ({ dispatch }) => dispatch.nodeId === last.nodeId && dispatch.providerId === last.providerId,
      )?.provider.resource;
  }

  /** Undefined where the place or the connection was lost before anything was sent. */
  #open(
    submission: TunnelSubmission,
    requestId: string,
    grant: Grant,
    progress: Progress,
  ): StreamTunnel | undefined {
    const { candidate, lease } = grant;
    try {
      if (submission.signal?.aborted === true) throw new EdgeError("cancelled", "withdrawn by the caller");
      if (this.#draining) throw new EdgeError("draining", "the Edge is shutting down");
      if (!lease.held || !candidate.provider.resource.live) {
        lease.release();
        return undefined;
      }
      const owner = this.#registry.dispatchable(candidate.dispatch.nodeId);
      // A live resource has an owner; were it not so, it would be asked for again and again.
      if (owner === undefined) throw new EdgeError("internal", "a live provider without a connection");
      return this.#send(submission, requestId, grant, owner, progress);
    } catch (error) {
      const lost = WireError.is(error) && error.code !== "invalid_argument";
      if (lost) lease.refused();
      else lease.release();
      if (lost) return undefined;
      if (WireError.is(error))
        throw new EdgeError("invalid_request", "the request's headers are too long", { cause: error });
      throw error;
    }
  }

  #send(
    submission: TunnelSubmission,
    requestId: string,
    grant: Grant,
    owner: Owner,
    { attempt, startedAt }: Progress,
  ): StreamTunnel {
    const { candidate, lease, path, position, waitedMs } = grant;
    const { provider, dispatch } = candidate;
    const { model, operation, principal, signal } = submission;
    const body = submission.buildBody(dispatch.target);
    const bodyLength = totalLength(body);
    if (bodyLength > this.#bodyBytes) {
      throw new EdgeError("body_too_large", `body of ${bodyLength} bytes; the limit is ${this.#bodyBytes}`);
    }
    const inline = bodyLength <= INLINE_BODY_BYTES;
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
      queue: { position, waitedMs },
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
          queuedMs: waitedMs,
          attempts: attempt,
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
