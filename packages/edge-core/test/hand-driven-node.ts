import { create } from "@bufbuild/protobuf";
import type {
  ConfigRefreshRequest,
  GoAway,
  NodeReadyResponse,
  ProviderTunnelRequest,
  RegisterResponse,
  SessionMessage,
  WireError,
  WireStream,
} from "@iop/wire";
import {
  ConfigRefreshResponseSchema,
  DEFAULT_FLOW_LIMITS,
  NodeReadyRequestSchema,
  ProviderHealth,
  ProviderStatusSchema,
  ProviderTunnelFrame_Kind as Kind,
  ProviderTunnelFrameSchema,
  RegisterRequestSchema,
  Session,
} from "@iop/wire";

import type { EdgeWorld } from "./edge-world.ts";

export interface RegisterOverrides {
  readonly token?: string;
  readonly nodeName?: string;
  readonly instanceId?: string;
  readonly protocolVersion?: number;
  readonly streamWindowBytes?: number;
}

/** A tunnel as the Node sees it. */
export interface OpenedTunnel {
  readonly stream: WireStream;
  readonly request: ProviderTunnelRequest;
}

/** The Node's side of one connection, moved by the test message by message. */
export class HandDrivenNode {
  readonly session: Session;
  readonly opened: OpenedTunnel[] = [];
  readonly goAways: GoAway[] = [];
  readonly messages: SessionMessage[] = [];
  closed: WireError | undefined;
  readonly #world: EdgeWorld;

  private constructor(world: EdgeWorld, session: (node: HandDrivenNode) => Session) {
    this.#world = world;
    this.session = session(this);
  }

  static async dial(world: EdgeWorld): Promise<HandDrivenNode> {
    const connection = await world.transport.dial({ signal: new AbortController().signal });
    return new HandDrivenNode(
      world,
      (node) =>
        new Session({
          connection,
          role: "node",
          clock: world.clock,
          maxFrameBytes: 1024 * 1024,
          handlers: {
            message: (message) => void node.messages.push(message),
            opened: (stream, opening) => void node.opened.push({ stream, request: opening.value }),
            goAway: (goAway) => void node.goAways.push(goAway),
            closed: (error) => {
              node.closed = error;
            },
          },
        }),
    );
  }

  /** Dials, registers and becomes ready, with every provider of `statuses` healthy. */
  static async ready(
    world: EdgeWorld,
    overrides: RegisterOverrides = {},
    statuses: Readonly<Record<string, number>> = { p1: 0 },
  ): Promise<HandDrivenNode> {
    const node = await HandDrivenNode.dial(world);
    const response = await node.register(overrides);
    if (!response.accepted) throw new Error(response.reason);
    const { ready, reason } = await node.becomeReady(statuses);
    if (!ready) throw new Error(reason);
    return node;
  }

  register(overrides: RegisterOverrides = {}): Promise<RegisterResponse> {
    return this.#world.settled(this.registering(overrides));
  }

  /** As `register`, but lets no time pass: the Edge may take some. */
  async registering(overrides: RegisterOverrides = {}): Promise<RegisterResponse> {
    const { value } = await this.session.request(registration(overrides), "registerResponse", {
      timeoutMs: 60_000,
    });
    if (value.accepted) this.session.agree({ ...DEFAULT_FLOW_LIMITS, ...value.limits });
    return value;
  }

  /** `statuses`: provider to the concurrency that it reports; 0 for none. */
  async becomeReady(
    statuses: Readonly<Record<string, number>> = { p1: 0 },
    overrides: { readonly nodeId?: string; readonly revision?: bigint } = {},
  ): Promise<NodeReadyResponse> {
    const request = create(NodeReadyRequestSchema, {
      nodeId: overrides.nodeId ?? "n1",
      configRevision: overrides.revision ?? 1n,
      providers: Object.entries(statuses).map(([id, maxConcurrency]) =>
        create(ProviderStatusSchema, { id, maxConcurrency, health: ProviderHealth.OK }),
      ),
    });
    const { value } = await this.#world.settled(
      this.session.request({ case: "nodeReadyRequest", value: request }, "nodeReadyResponse", {
        timeoutMs: 1_000,
      }),
    );
    return value;
  }

  async report(id: string, health: ProviderHealth, maxConcurrency = 0, reason = ""): Promise<void> {
    const value = create(ProviderStatusSchema, { id, health, maxConcurrency, reason });
    this.session.send({ case: "providerStatus", value });
    await this.#world.clock.settle();
  }

  /** The changed configurations that the Edge has sent, in order. */
  get refreshes(): ConfigRefreshRequest[] {
    return this.messages.flatMap((message) =>
      message.case === "configRefreshRequest" ? [message.value] : [],
    );
  }

  /** Answers to the configuration that came last, or to `revision`; `refused`: provider to reason. */
  async answerRefresh(refused: Readonly<Record<string, string>> = {}, revision?: number): Promise<void> {
    const config = this.refreshes.at(-1)?.config;
    const value = create(ConfigRefreshResponseSchema, {
      revision: revision === undefined ? (config?.revision ?? 0n) : BigInt(revision),
      providers: (config?.providers ?? []).map(({ id }) => ({
        id,
        accepted: refused[id] === undefined,
        reason: refused[id] ?? "",
      })),
    });
    this.session.send({ case: "configRefreshResponse", value });
    await this.#world.clock.settle();
  }

  /** The tunnel that was opened last. */
  get last(): OpenedTunnel {
    const last = this.opened.at(-1);
    if (last === undefined) throw new Error("no tunnel was opened");
    return last;
  }
}

export function registration(
  overrides: RegisterOverrides = {},
): Extract<SessionMessage, { case: "registerRequest" }> {
  const {
    token = "token-1",
    nodeName = "n1",
    instanceId = "i1",
    protocolVersion = 1,
    streamWindowBytes,
  } = overrides;
  return {
    case: "registerRequest",
    value: create(RegisterRequestSchema, {
      token,
      nodeName,
      instanceId,
      protocolVersion,
      softwareVersion: "0.0.0",
      ...(streamWindowBytes === undefined ? {} : { limits: { streamWindowBytes } }),
    }),
  };
}

export function sendStart(
  { stream }: OpenedTunnel,
  status = 200,
  headers: ReadonlyArray<readonly [string, string]> = [],
): void {
  stream.send({
    case: "providerTunnelFrame",
    value: create(ProviderTunnelFrameSchema, {
      kind: Kind.RESPONSE_START,
      status,
      headers: headers.map(([name, value]) => ({ name, value })),
    }),
  });
}

export function sendBody({ stream }: OpenedTunnel, text: string): void {
  stream.sendBody(Buffer.from(text));
}

export function sendEnd({ stream }: OpenedTunnel): void {
  stream.send({ case: "providerTunnelFrame", value: create(ProviderTunnelFrameSchema, { kind: Kind.END }) });
}

export function sendError({ stream }: OpenedTunnel, errorCode: string, errorMessage = "it failed"): void {
  stream.send({
    case: "providerTunnelFrame",
    value: create(ProviderTunnelFrameSchema, { kind: Kind.ERROR, errorCode, errorMessage }),
  });
}
