import type { Clock, ProviderStatus } from "@iop/wire";

import type { Hold, Resource, ResourceOptions } from "./resource.ts";
import { ProviderResource } from "./resource.ts";

/** Told of every change that matters to those who wait for providers, in the turn of the change. */
export interface LedgerWatcher {
  /** `resource` may have room that it had not, or none any more. */
  room(resource: Resource): void;
  /** The resources have changed together: room, health or configuration, to the better or the worse. */
  changed(resources: Iterable<Resource>): void;
}

/** What a ledger is to become; nothing of it holds before `commit`. */
export interface LedgerPlan {
  /** The resource of this provider: the one that the ledger has, with its work, else a new one, offline. */
  add(node: string, provider: string, options: ResourceOptions): Resource;
  /** Makes it hold, in this turn: what was not added gets no new work from here on. */
  commit(): void;
}

/** The counts of all providers; leases are given and taken back nowhere else. */
export class ResourceLedger {
  readonly #nodes = new Map<string, Map<string, ProviderResource>>();
  readonly #clock: Clock;
  #watcher: LedgerWatcher = { room: () => {}, changed: () => {} };

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** From here on `watcher` is told; there is one. */
  watch(watcher: LedgerWatcher): void {
    this.#watcher = watcher;
  }

  /** Begins a new configuration. Plans that are not committed leave nothing behind. */
  plan(): LedgerPlan {
    const planned = new Map<ProviderResource, ResourceOptions>();
    return {
      add: (node, provider, options) => {
        const resource = this.#nodes.get(node)?.get(provider) ?? this.#create(node, provider);
        planned.set(resource, options);
        return resource;
      },
      commit: () => this.#commit(planned),
    };
  }

  /**
   * Brings all resources of `node` online for `generation`; one without a status stays unhealthy. To those of
   * `held`, by provider, happens what `hold` does, before anybody can be granted one.
   */
  activate(
    node: string,
    generation: number,
    statuses: readonly ProviderStatus[],
    held: ReadonlyMap<string, Hold> = new Map(),
  ): void {
    const ofNode = this.#nodes.get(node);
    for (const resource of ofNode?.values() ?? []) if (resource.configured) resource.activate(generation);
    for (const [provider, hold] of held) ofNode?.get(provider)?.hold(generation, hold);
    for (const status of statuses) ofNode?.get(status.id)?.report(generation, status);
    this.#watcher.changed(ofNode?.values() ?? []);
  }

  /** Sends `node` nothing new from here on, until its next generation. */
  drain(node: string, generation: number): void {
    const ofNode = this.#nodes.get(node);
    for (const resource of ofNode?.values() ?? []) resource.drain(generation);
    this.#watcher.changed(ofNode?.values() ?? []);
  }

  /** Keeps new work from a provider until `accept`, also from one that has only now been configured; running work goes on. */
  hold(node: string, generation: number, provider: string, hold: Hold): void {
    const resource = this.#nodes.get(node)?.get(provider);
    resource?.hold(generation, hold);
    this.#tell(resource);
  }

  /** Forgets what is neither configured nor one of `running`, which the Node runs, and has no work. */
  forget(node: string, running: ReadonlySet<string>): void {
    for (const [provider, resource] of this.#nodes.get(node) ?? [])
      if (!resource.configured && !resource.busy && !running.has(provider))
        this.#nodes.get(node)?.delete(provider);
  }

  /** Ends a `hold`. */
  accept(node: string, generation: number, provider: string): void {
    const resource = this.#nodes.get(node)?.get(provider);
    resource?.accept(generation);
    this.#tell(resource);
  }

  /** Takes in what a Node says of a provider; ignored for another generation or an unknown provider. */
  report(node: string, generation: number, status: ProviderStatus): void {
    const resource = this.#nodes.get(node)?.get(status.id);
    resource?.report(generation, status);
    this.#tell(resource);
  }

  /**
   * Returns every lease of `generation` on `node` and takes its resources offline, all of them before anybody is
   * told (spec rule 3). Idempotent.
   */
  fence(node: string, generation: number): void {
    const ofNode = this.#nodes.get(node);
    for (const resource of ofNode?.values() ?? []) resource.fence(generation);
    const fenced = [...(ofNode?.values() ?? [])];
    this.#forgetOffline(node);
    this.#watcher.changed(fenced);
  }

  // One whose node is connected may be configured again before the Node has heard that it was not: its work and
  // its health then count on.
  #forgetOffline(node: string): void {
    const ofNode = this.#nodes.get(node);
    for (const [provider, resource] of ofNode ?? [])
      if (!resource.configured && resource.generation === undefined) ofNode?.delete(provider);
    if (ofNode?.size === 0) this.#nodes.delete(node);
  }

  #create(node: string, provider: string): ProviderResource {
    return new ProviderResource(node, provider, this.#clock, (resource) => this.#watcher.room(resource));
  }

  #tell(resource: ProviderResource | undefined): void {
    if (resource !== undefined) this.#watcher.changed([resource]);
  }

  #commit(planned: ReadonlyMap<ProviderResource, ResourceOptions>): void {
    for (const [node, resources] of this.#nodes) {
      for (const resource of resources.values()) if (!planned.has(resource)) resource.remove();
      this.#forgetOffline(node);
    }
    for (const [resource, options] of planned) {
      resource.configure(options);
      const ofNode = this.#nodes.get(resource.node);
      if (ofNode === undefined) this.#nodes.set(resource.node, new Map([[resource.provider, resource]]));
      else ofNode.set(resource.provider, resource);
    }
  }
}
