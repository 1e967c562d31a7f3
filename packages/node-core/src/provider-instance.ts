import type { CapacityPermit, ProviderRegistry, RegisteredProvider } from "@iop/agent-runtime";
import { RuntimeError } from "@iop/agent-runtime";
import type { Clock } from "@iop/wire";

import { HealthWatch } from "./health-watch.ts";
import type { NodeProviderStatus } from "./node-listeners.ts";

/** One piece of work on an instance, from before it is admitted until it has stopped. Disposing ends it. */
export interface ProviderUse extends Disposable {
  readonly registered: RegisteredProvider;
  /**
   * Takes a place, to be released once the work has stopped.
   * @throws RuntimeError `provider_unavailable`, `capacity_exhausted`.
   */
  admit(): CapacityPermit;
}

/** A registered instance, its health, and the work that has begun on it and keeps it alive. */
export class ProviderInstance {
  readonly registered: RegisteredProvider;
  readonly watch: HealthWatch;
  #uses = 0;
  #unused: (() => void) | undefined;
  #stopping = false;

  /** `changed` is told the health once it is known, and when it changes. */
  constructor(options: {
    readonly registered: RegisteredProvider;
    readonly clock: Clock;
    readonly changed: (status: NodeProviderStatus) => void;
  }) {
    this.registered = options.registered;
    this.watch = new HealthWatch(options);
  }

  use(): ProviderUse {
    this.#uses++;
    let over = false;
    return {
      registered: this.registered,
      admit: () => this.#admit(),
      [Symbol.dispose]: () => {
        if (over) return;
        over = true;
        this.#uses--;
        if (this.#uses === 0) this.#unused?.();
      },
    };
  }

  /**
   * Takes it out of `registry`; its name is free at once, and there must be no new use of it. Its work has been
   * aborted, or where `serving` is given, goes on until it ends or that fires. Resolves once it has stopped;
   * never rejects.
   */
  retire(registry: ProviderRegistry, serving?: AbortSignal): Promise<void> {
    this.watch.end();
    const { id } = this.registered;
    if (serving !== undefined) return registry.remove(id, { after: this.#workOver(serving) });
    this.#stopping = true;
    return registry.remove(id);
  }

  async #workOver(serving: AbortSignal): Promise<void> {
    if (this.#uses > 0 && !serving.aborted) {
      const { promise, resolve } = Promise.withResolvers<void>();
      const over = (): void => resolve();
      this.#unused = over;
      serving.addEventListener("abort", over);
      await promise;
      serving.removeEventListener("abort", over);
    }
    this.#stopping = true;
  }

  #admit(): CapacityPermit {
    const { id, gate } = this.registered;
    if (this.#stopping) throw new RuntimeError("provider_unavailable", `provider ${id} is stopping`);
    const { health, reason } = this.watch.status;
    if (health === "offline") throw new RuntimeError("provider_unavailable", `provider ${id}: ${reason}`);
    const permit = gate.tryAcquire();
    if (permit === undefined)
      throw new RuntimeError("capacity_exhausted", `provider ${id} is at its capacity`);
    return permit;
  }
}
