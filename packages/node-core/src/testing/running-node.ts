import type { Adapter } from "@iop/agent-runtime";
import { createVirtualClock, type VirtualClock } from "@iop/wire";
import { memoryTransport, type MemoryTransport } from "@iop/wire/memory";

import { createNode, type NodeStatus } from "../node.ts";
import type { NodeOptions } from "../node-options.ts";
import { HandDrivenEdge } from "./hand-driven-edge.ts";

/** A Node that runs against a hand-driven Edge, in virtual time. */
export interface RunningNode {
  readonly clock: VirtualClock;
  readonly transport: MemoryTransport;
  readonly edge: HandDrivenEdge;
  status(): NodeStatus;
  /** What the listeners were told: `ready`, `disconnected REASON`, `retry ATTEMPT DELAY`, `provider ID HEALTH`. */
  readonly told: string[];
  readonly shutdown: AbortController;
  /** How `run` ended: undefined while it runs. */
  readonly outcome: { readonly error?: unknown } | undefined;
  /** Shuts down and waits for the end. */
  end(): Promise<void>;
}

/** Starts one; it has dialled when this resolves. `random` is 0.5: waits are exact. */
export async function runNode(adapter: Adapter, options: Partial<NodeOptions> = {}): Promise<RunningNode> {
  const clock = createVirtualClock();
  const transport = memoryTransport({ clock });
  const edge = await HandDrivenEdge.listen(transport, clock);
  const told: string[] = [];
  const shutdown = new AbortController();
  let outcome: { readonly error?: unknown } | undefined;
  const node = createNode({
    transport,
    name: "gpu-1",
    token: "secret-token",
    adapters: [adapter],
    allow: { endpoints: ["http://127.0.0.1:*"], env: ["KEY_A"] },
    clock,
    random: () => 0.5,
    on: {
      ready: ({ edge: name }) => told.push(`ready ${name}`),
      disconnected: ({ reason }) => told.push(`disconnected ${reason}`),
      edgeDraining: () => told.push("edge draining"),
      retry: ({ attempt, delayMs }) => told.push(`retry ${attempt} ${delayMs}`),
      provider: ({ id, health }) => told.push(`provider ${id} ${health}`),
      reconfigured: ({ revision, providers }) =>
        told.push(
          ["reconfigured", revision, ...providers.map(({ id, accepted }) => `${id}=${accepted}`)].join(" "),
        ),
    },
    ...options,
  });
  const run = async (): Promise<void> => {
    try {
      await node.run({ signal: shutdown.signal });
      outcome = {};
    } catch (error) {
      outcome = { error };
    }
  };
  void run();
  await clock.settle();
  return {
    clock,
    transport,
    edge,
    status: () => node.status(),
    told,
    shutdown,
    get outcome() {
      return outcome;
    },
    async end() {
      shutdown.abort();
      await clock.advance(60_000);
      await edge.close();
    },
  };
}
