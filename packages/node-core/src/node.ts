import { NodeError } from "./node-error.ts";
import type { NodeOptions } from "./node-options.ts";
import { checkNodeOptions } from "./node-options.ts";
import { supervise } from "./supervisor.ts";

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
}

/**
 * Makes a Node; nothing happens before `run`.
 * @throws NodeError `invalid_options` that names the option.
 */
export function createNode(options: NodeOptions): Node {
  const settings = checkNodeOptions(options);
  const instanceId = crypto.randomUUID();
  let running = false;
  return {
    instanceId,
    async run({ signal }) {
      if (running) throw new NodeError("already_running", "this node runs already");
      running = true;
      try {
        await supervise(settings, instanceId, signal);
      } finally {
        running = false;
      }
    },
  };
}
