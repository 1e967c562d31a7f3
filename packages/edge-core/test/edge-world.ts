import { createHash } from "node:crypto";
import type { Transport, VirtualClock } from "@iop/wire";
import { createVirtualClock } from "@iop/wire";
import type { MemoryTransport } from "@iop/wire/memory";
import { memoryTransport } from "@iop/wire/memory";

import type { Edge } from "../src/edge.ts";
import { createEdge } from "../src/edge.ts";
import type { EdgeOptions } from "../src/edge-options.ts";
import type { ProviderTunnel, TunnelFrame, TunnelSubmission } from "../src/edge-service.ts";
import type { NodeEvent, RunOutcomeEvent } from "../src/event-bus.ts";
import type { NodeRecord, ProviderRecord } from "../src/node-record.ts";
import type { ProviderSnapshot } from "../src/snapshot.ts";

/** An Edge on an in-memory network under a clock that the test moves. */
export class EdgeWorld {
  readonly clock: VirtualClock;
  readonly transport: MemoryTransport;
  readonly edge: Edge;
  readonly nodeEvents: NodeEvent[] = [];
  readonly runEvents: RunOutcomeEvent[] = [];

  /** `around` puts something around the network that the Edge listens on. */
  constructor(
    options: Partial<EdgeOptions> = {},
    around: (transport: Transport) => Transport = (transport) => transport,
  ) {
    this.clock = createVirtualClock();
    this.transport = memoryTransport({ clock: this.clock });
    this.edge = createEdge({
      name: "edge-1",
      transport: around(this.transport),
      clock: this.clock,
      nodes: [nodeRecord("n1", "token-1"), nodeRecord("n2", "token-2")],
      models: [{ key: "m", candidates: [{ node: "n1", provider: "p1", target: "served" }] }],
      ...options,
    });
    this.edge.events.on("node", (event) => void this.nodeEvents.push(event));
    this.edge.events.on("run", (event) => void this.runEvents.push(event));
  }

  static async listening(...parameters: ConstructorParameters<typeof EdgeWorld>): Promise<EdgeWorld> {
    const world = new EdgeWorld(...parameters);
    await world.edge.listen();
    return world;
  }

  /** What `promise` becomes once everything that can happen now has happened. */
  async settled<T>(promise: Promise<T>): Promise<T> {
    // It may fail while time is made to pass, before anybody looks.
    promise.catch(() => {});
    await this.clock.settle();
    return promise;
  }

  /** Submits, and lets happen what can happen at once. */
  async begin(overrides: Partial<TunnelSubmission> = {}): Promise<Submitted> {
    const submitted = new Submitted(this.edge, {
      model: "m",
      operation: "chat_completions",
      buildBody: (target) => [Buffer.from(`{"model":"${target}"}`)],
      ...overrides,
    });
    await this.clock.settle();
    return submitted;
  }

  /** As `begin`, for what is decided at once; fails otherwise. */
  async submit(overrides: Partial<TunnelSubmission> = {}): Promise<ProviderTunnel> {
    const submitted = await this.begin(overrides);
    if (submitted.state === "pending") throw new Error("the submission is not decided yet");
    return submitted.tunnel;
  }

  provider(node = "n1", id = "p1"): ProviderSnapshot {
    const found = this.edge
      .snapshot()
      .nodes.find(({ name }) => name === node)
      ?.providers.find((each) => each.id === id);
    if (found === undefined) throw new Error(`no ${node}/${id} in the snapshot`);
    return found;
  }

  /** Types of the node events, with their codes. */
  get lifecycle(): string[] {
    return this.nodeEvents.map(({ node, type, code }) => [node, type, code].filter(Boolean).join(" "));
  }
}

/** A submission under way: waiting, or sent and not answered yet, until there is a tunnel or an error. */
export class Submitted {
  readonly tunnel: Promise<ProviderTunnel>;
  /** `refused`: an EdgeError or another one. */
  state: "pending" | "answered" | "refused" = "pending";
  readonly #abort = new AbortController();

  constructor(edge: Edge, submission: TunnelSubmission) {
    const signal = submission.signal ?? this.#abort.signal;
    this.tunnel = edge.submitProviderTunnel({ ...submission, signal });
    this.tunnel.then(
      () => {
        this.state = "answered";
      },
      () => {
        this.state = "refused";
      },
    );
  }

  /** Every frame from here on, to the last. */
  frames(): Promise<TunnelFrame[]> {
    const frames = this.tunnel.then(allFrames);
    frames.catch(() => {});
    return frames;
  }

  /** By the submission's own signal, where it has none of the test's. */
  withdraw(): void {
    this.#abort.abort();
  }
}

export function nodeRecord(
  name: string,
  token: string,
  providers: readonly ProviderRecord[] = [provider("p1")],
): NodeRecord {
  return { name, tokenSha256: createHash("sha256").update(token).digest("hex"), providers };
}

export function provider(id: string, overrides: Partial<ProviderRecord> = {}): ProviderRecord {
  return {
    id,
    adapter: "openai-compat",
    profile: "openai-chat",
    endpoint: "http://127.0.0.1:8000",
    capacity: 2,
    usageAttribution: "provider",
    enabled: true,
    firstByteTimeoutMs: 1_000,
    idleTimeoutMs: 2_000,
    ...overrides,
  };
}

/** Every frame that comes until the tunnel is over. */
export async function allFrames(tunnel: ProviderTunnel): Promise<TunnelFrame[]> {
  const frames: TunnelFrame[] = [];
  for await (const frame of tunnel) frames.push(frame);
  return frames;
}

/** Frames as short text: `start 200`, `body abc`, `error code`. */
export function brief(frames: readonly TunnelFrame[]): string[] {
  return frames.map((frame) => {
    switch (frame.kind) {
      case "start":
        return `start ${frame.status}`;
      case "body":
        return `body ${Buffer.from(frame.body).toString()}`;
      case "error":
        return `error ${frame.code}`;
      case "usage":
      case "end":
        return frame.kind;
    }
  });
}
