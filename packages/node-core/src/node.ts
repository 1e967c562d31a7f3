import { NodeError } from "./node-error.ts";
import type { NodeProviderStatus } from "./node-listeners.ts";
import type { NodeOptions, NodeSettings } from "./node-options.ts";
import { checkNodeOptions } from "./node-options.ts";
import { ProviderSet } from "./provider-set.ts";
import { supervise } from "./supervisor.ts";
import { TunnelHandler } from "./tunnel-handler.ts";

/** A Node at one moment. */
export interface NodeStatus {
  /** The Edge has this Node in service. */
  readonly connected: boolean;
  /** All that the Edge's configuration names; empty before the first one came, and while the Node does not run. */
  readonly providers: readonly NodeProviderStatus[];
  /** Tunnels whose work has not ended. */
  readonly tunnels: number;
}

/** A Node: dials its Edge and serves the Edge's requests with adapters. */
export interface Node {
  /** Told to the Edge: the same instance that comes back is one owner moving, not a second claim. */
  readonly instanceId: string;
  /**
   * Serves until `signal` fires: then new work is refused, running work gets the drain timeout, and the
   * promise resolves. Dials again after whatever may pass.
   * @throws NodeError (a rejection) for what does not pass, and `exhausted`; `already_running`.
   */
  run(options: { readonly signal: AbortSignal }): Promise<void>;
  status(): NodeStatus;
}

/**
 * Makes a Node; nothing happens before `run`.
 * @throws NodeError `invalid_options` that names the option.
 */
export function createNode(options: NodeOptions): Node {
  const instanceId = crypto.randomUUID();
  let connected = false;
  const settings = watched(checkNodeOptions(options), (now) => {
    connected = now;
  });
  let running: { readonly providers: ProviderSet; readonly tunnels: TunnelHandler } | undefined;
  return {
    instanceId,
    async run({ signal }) {
      if (running !== undefined) throw new NodeError("already_running", "this node runs already");
      const { heldBodyBytes, clock, on } = settings;
      const providers = new ProviderSet(settings);
      const tunnels = new TunnelHandler({
        providers,
        heldBodyBytes,
        clock,
        ended: on.tunnel,
      });
      running = { providers, tunnels };
      try {
        await supervise({ settings, instanceId, providers, tunnels, signal });
      } finally {
        running = undefined;
        connected = false;
      }
    },
    status: () => ({
      connected,
      providers: running?.providers.statuses ?? [],
      tunnels: running?.tunnels.running ?? 0,
    }),
  };
}

/** The settings, with listeners that also say whether the Node is in service. */
function watched(settings: NodeSettings, tell: (connected: boolean) => void): NodeSettings {
  const { on } = settings;
  return {
    ...settings,
    on: {
      ...on,
      ready: (event) => {
        tell(true);
        on.ready?.(event);
      },
      disconnected: (event) => {
        tell(false);
        on.disconnected?.(event);
      },
    },
  };
}
