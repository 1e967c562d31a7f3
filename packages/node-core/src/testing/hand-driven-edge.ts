import type {
  Connection,
  GoAway,
  Listener,
  NodeConfigPayload,
  NodeReadyRequest,
  ProviderConfig,
  ProviderTunnelFrame,
  ProviderTunnelRequest,
  RegisterRequest,
  RegisterResponse,
  SessionMessage,
  StreamEnd,
  Transport,
  VirtualClock,
  WireError,
  WireStream,
} from "@iop/wire";
import { DEFAULT_FLOW_LIMITS, ProviderTunnelFrame_Kind as Kind, RegisterCode, Session } from "@iop/wire";

/** An Edge that does what a test says and nothing of its own, one step at a time. */
export class HandDrivenEdge {
  /** One for each connection, in order. */
  readonly sessions: readonly EdgeSide[];
  readonly #listener: Listener;

  private constructor(sessions: readonly EdgeSide[], listener: Listener) {
    this.sessions = sessions;
    this.#listener = listener;
  }

  static async listen(transport: Transport, clock: VirtualClock): Promise<HandDrivenEdge> {
    const sessions: EdgeSide[] = [];
    const listener = await transport.listen({
      accept: (connection) => void sessions.push(new EdgeSide(connection, clock)),
    });
    return new HandDrivenEdge(sessions, listener);
  }

  get last(): EdgeSide {
    const side = this.sessions.at(-1);
    if (side === undefined) throw new Error("nobody has dialled");
    return side;
  }

  close(): Promise<void> {
    return this.#listener.close();
  }
}

/** The Edge's end of one connection, and all that it has heard. */
export class EdgeSide {
  readonly session: Session;
  readonly messages: SessionMessage[] = [];
  readonly goAways: GoAway[] = [];
  closed: WireError | undefined;
  readonly #clock: VirtualClock;

  constructor(connection: Connection, clock: VirtualClock) {
    this.#clock = clock;
    this.session = new Session({
      connection,
      role: "edge",
      clock,
      maxFrameBytes: 64 * 1024,
      handlers: {
        message: (message) => this.messages.push(message),
        goAway: (goAway) => this.goAways.push(goAway),
        closed: (error) => {
          this.closed = error;
        },
      },
    });
  }

  /** The cases of what has come, in order. */
  get cases(): string[] {
    return this.messages.map((message) => message.case);
  }

  get registration(): RegisterRequest {
    const message = this.messages.find((one) => one.case === "registerRequest");
    if (message?.case !== "registerRequest") throw new Error("no registration");
    return message.value;
  }

  get ready(): NodeReadyRequest {
    const message = this.messages.find((one) => one.case === "nodeReadyRequest");
    if (message?.case !== "nodeReadyRequest") throw new Error("no ready");
    return message.value;
  }

  /** `id=health` of each status after the ready, in order. */
  get statuses(): string[] {
    return this.messages.flatMap((message) =>
      message.case === "providerStatus" ? [`${message.value.id}=${message.value.health}`] : [],
    );
  }

  answer(response: Partial<RegisterResponse>): void {
    this.session.send({ case: "registerResponse", value: { ...NO_RESPONSE, ...response } });
    if (response.accepted === true) this.session.agree(DEFAULT_FLOW_LIMITS);
  }

  accept(providers: readonly Partial<ProviderConfig>[], more: Partial<RegisterResponse> = {}): void {
    this.answer({
      accepted: true,
      nodeId: "gpu-1",
      edgeName: "edge-1",
      config: configOf(7n, providers),
      ...more,
    });
  }

  /** Changes the configuration. */
  refresh(revision: bigint, providers: readonly Partial<ProviderConfig>[]): void {
    this.session.sendBehindOpenings({
      case: "configRefreshRequest",
      value: { $typeName: "iop.ConfigRefreshRequest", config: configOf(revision, providers) },
    });
  }

  /** `REVISION id=accepted id=REASON …` of each answer to a changed configuration, in order. */
  get refreshed(): string[] {
    return this.messages.flatMap((message) =>
      message.case === "configRefreshResponse"
        ? [
            [
              String(message.value.revision),
              ...message.value.providers.map(
                ({ id, accepted, reason }) => `${id}=${accepted ? "accepted" : reason}`,
              ),
            ].join(" "),
          ]
        : [],
    );
  }

  acknowledge(ready = true, reason = ""): void {
    this.session.send({
      case: "nodeReadyResponse",
      value: { $typeName: "iop.NodeReadyResponse", ready, reason },
    });
  }

  /** All the way to ready. */
  async welcome(providers: readonly Partial<ProviderConfig>[]): Promise<void> {
    await this.#clock.settle();
    this.accept(providers);
    await this.#clock.settle();
    this.acknowledge();
    await this.#clock.settle();
  }

  open(request: Partial<ProviderTunnelRequest> = {}, body: readonly Uint8Array[] = []): EdgeTunnel {
    const length = body.reduce((sum, chunk) => sum + chunk.length, 0);
    return new EdgeTunnel((listener) =>
      this.session.open(
        {
          case: "providerTunnelRequest",
          value: {
            ...NO_REQUEST,
            bodyLength: BigInt(length + (request.body?.length ?? 0)),
            ...request,
          },
        },
        body,
        { closed: listener },
      ),
    );
  }
}

/** The Edge's end of one tunnel. Reads nothing until told to. */
export class EdgeTunnel {
  readonly stream: WireStream;
  readonly frames: ProviderTunnelFrame[] = [];
  readonly ends: StreamEnd[] = [];
  failure: unknown;

  constructor(open: (listener: (end: StreamEnd) => void) => WireStream) {
    this.stream = open((end) => this.ends.push(end));
  }

  /** Reads to the end, in the background. */
  read(): this {
    void this.#read();
    return this;
  }

  /** `start 200`, `body`, `usage`, `end`, `error CODE`; bodies that follow each other are one. */
  get story(): string[] {
    const story: string[] = [];
    for (const frame of this.frames) {
      const line = describe(frame);
      if (line !== "body" || story.at(-1) !== "body") story.push(line);
    }
    return story;
  }

  get body(): Buffer {
    return Buffer.concat(this.frames.map((frame) => frame.body));
  }

  get errorMessage(): string {
    return this.frames.at(-1)?.errorMessage ?? "";
  }

  async #read(): Promise<void> {
    try {
      for await (const message of this.stream) {
        if (message.case !== "providerTunnelFrame") throw new Error(`${message.case} on a tunnel`);
        // A view is valid until the next is asked for.
        this.frames.push({ ...message.value, body: message.value.body.slice() });
      }
    } catch (error) {
      this.failure = error;
    }
  }
}

function describe(frame: ProviderTunnelFrame): string {
  switch (frame.kind) {
    case Kind.RESPONSE_START:
      return `start ${frame.status}`;
    case Kind.BODY:
      return "body";
    case Kind.USAGE:
      return "usage";
    case Kind.END:
      return "end";
    case Kind.ERROR:
      return `error ${frame.errorCode}`;
    default:
      return `kind ${frame.kind}`;
  }
}

function configOf(revision: bigint, providers: readonly Partial<ProviderConfig>[]): NodeConfigPayload {
  return {
    $typeName: "iop.NodeConfigPayload",
    revision,
    bodyBytes: 1_000_000n,
    providers: providers.map((one) => ({ ...NO_PROVIDER, ...one })),
  };
}

const NO_RESPONSE: RegisterResponse = {
  $typeName: "iop.RegisterResponse",
  accepted: false,
  reason: "",
  code: RegisterCode.UNSPECIFIED,
  retryable: false,
  retryAfterMs: 0,
  nodeId: "",
  edgeName: "",
};

const NO_PROVIDER: ProviderConfig = {
  $typeName: "iop.ProviderConfig",
  id: "p",
  adapter: "scripted",
  endpoint: "",
  capacity: 2,
  authEnv: "",
  firstByteTimeoutMs: 0,
  idleTimeoutMs: 0,
};

const NO_REQUEST: ProviderTunnelRequest = {
  $typeName: "iop.ProviderTunnelRequest",
  requestId: "r",
  providerId: "p",
  method: "POST",
  path: "",
  headers: [],
  body: new Uint8Array(0),
  bodyLength: 0n,
  firstByteTimeoutMs: 0,
  idleTimeoutMs: 0,
  target: "m",
  operation: "chat_completions",
};
