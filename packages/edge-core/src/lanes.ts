import type { Clock, Timer } from "@iop/wire";

import type { AdmissionRequest, Grant, Ticket } from "./admission.ts";
import type { Place } from "./arrival-list.ts";
import type { Candidate, Catalog, CatalogModel } from "./catalog.ts";
import { operationPath } from "./catalog.ts";
import { EdgeError } from "./edge-error.ts";
import { OpenResources } from "./open-resources.ts";
import type { Resource } from "./resource.ts";
import type { Waiting } from "./waiting-line.ts";
import { WaitingLine } from "./waiting-line.ts";

/** What is known of a model: how many wait for it, and its lanes by operation. */
export interface ModelState {
  readonly model: CatalogModel;
  waiting: number;
  readonly lanes: Map<string, Lane>;
}

/** A model for one operation: what can serve it, by resource. */
export interface Lane {
  readonly state: ModelState;
  readonly candidates: ReadonlyMap<Resource, Candidate>;
  /** The operation's path where it is the same everywhere, as it nearly always is; else by resource. */
  readonly path: string | ReadonlyMap<Resource, string>;
  /** Undefined where all are 1. */
  readonly weights: ReadonlyMap<Resource, number> | undefined;
  readonly group: Group;
}

/** The lanes that share the same resources, whatever models they are of; those who wait for them stand in one line. */
export interface Group {
  readonly resources: readonly Resource[];
  readonly open: OpenResources;
  readonly line: WaitingLine<Waiter>;
  /** Input tokens from which on some of the resources call a request long; ascending. */
  readonly thresholds: readonly number[];
  /** Resources that serve, or are about to. */
  hopes: number;
  /** While that is 0: since when, on the pool's clock. */
  hopelessAt: number;
  grace: Timer | undefined;
}

/** What the pool last knew of a resource, and who cares. */
export interface View {
  hope: boolean;
  open: boolean;
  readonly groups: Group[];
}

/** A request that waits. */
export interface Waiter extends Waiting {
  readonly request: AdmissionRequest;
  readonly ticket: Ticket;
  readonly since: number;
  lane: Lane;
  demand: number;
  place: Place<Waiter> | undefined;
  deadline: Place<Waiter> | undefined;
  withdraw: (() => void) | undefined;
  readonly resolve: (grant: Grant) => void;
  readonly reject: (error: EdgeError) => void;
}

/** How the models of one configuration lead to resources; made as they are asked for. */
export class Lanes {
  readonly #catalog: Catalog;
  readonly #clock: Clock;
  readonly #models = new Map<string, ModelState>();
  readonly #groups = new Map<string, Group>();
  readonly #views = new Map<Resource, View>();
  readonly #numbers = new Map<Resource, number>();

  constructor(catalog: Catalog, clock: Clock) {
    this.#catalog = catalog;
    this.#clock = clock;
  }

  /** Those that somebody has asked for. */
  get groups(): Iterable<Group> {
    return this.#groups.values();
  }

  /** Requests that wait for `model`. */
  waitingFor(model: string): number {
    return this.#models.get(model)?.waiting ?? 0;
  }

  /** Undefined where nobody has asked for anything that leads there. */
  view(resource: Resource): View | undefined {
    return this.#views.get(resource);
  }

  /**
   * The way of this model to this operation.
   * @throws EdgeError `unknown_model`, `unsupported_operation`.
   */
  lane(key: string, operation: string): Lane {
    let state = this.#models.get(key);
    if (state === undefined) {
      const model = this.#catalog.model(key);
      if (model === undefined)
        throw new EdgeError("unknown_model", `no model is named ${JSON.stringify(key.slice(0, 256))}`);
      state = { model, waiting: 0, lanes: new Map() };
      this.#models.set(key, state);
    }
    return state.lanes.get(operation) ?? this.#newLane(state, operation);
  }

  #newLane(state: ModelState, operation: string): Lane {
    const { model } = state;
    const candidates = new Map<Resource, Candidate>();
    const paths = new Map<Resource, string>();
    for (const candidate of model.candidates) {
      const { profile, resource } = candidate.provider;
      const path = operationPath(profile, operation);
      if (path === undefined || candidates.has(resource)) continue;
      candidates.set(resource, candidate);
      paths.set(resource, path);
    }
    const [first] = paths.values();
    if (first === undefined) {
      const name = JSON.stringify(model.key);
      throw new EdgeError("unsupported_operation", `no provider of model ${name} offers ${operation}`);
    }
    const weights = new Map([...candidates].map(([resource, { weight }]) => [resource, weight]));
    const lane: Lane = {
      state,
      candidates,
      path: [...paths.values()].every((path) => path === first) ? first : paths,
      weights: [...weights.values()].every((weight) => weight === 1) ? undefined : weights,
      group: this.#group([...candidates.keys()]),
    };
    // Only operations that some profile names get here, so that callers cannot make this grow.
    state.lanes.set(operation, lane);
    return lane;
  }

  #group(resources: readonly Resource[]): Group {
    const key = resources
      .map((resource) => this.#number(resource))
      .toSorted((a, b) => a - b)
      .join();
    const known = this.#groups.get(key);
    if (known !== undefined) return known;
    const group: Group = {
      resources,
      open: new OpenResources(),
      line: new WaitingLine(),
      thresholds: [...new Set(resources.map(({ longThreshold }) => longThreshold))].toSorted((a, b) => a - b),
      hopes: 0,
      hopelessAt: this.#clock.now(),
      grace: undefined,
    };
    this.#groups.set(key, group);
    for (const resource of resources) {
      const view = this.#view(resource);
      view.groups.push(group);
      if (view.hope) group.hopes++;
      if (view.open) group.open.add(resource);
    }
    return group;
  }

  #view(resource: Resource): View {
    let view = this.#views.get(resource);
    if (view === undefined) {
      view = { hope: isHope(resource), open: resource.hasRoom(0), groups: [] };
      this.#views.set(resource, view);
    }
    return view;
  }

  #number(resource: Resource): number {
    let number = this.#numbers.get(resource);
    if (number === undefined) this.#numbers.set(resource, (number = this.#numbers.size));
    return number;
  }

  /** Brings what is known of a resource up to date. */
  see(resource: Resource, view: View | undefined = this.#views.get(resource)): void {
    if (view === undefined) return;
    const open = resource.hasRoom(0);
    const hope = isHope(resource);
    if (open === view.open && hope === view.hope) return;
    for (const group of view.groups) {
      if (open !== view.open) group.open.set(resource, open);
      if (hope === view.hope) continue;
      group.hopes += hope ? 1 : -1;
      if (group.hopes === 0) group.hopelessAt = this.#clock.now();
    }
    view.open = open;
    view.hope = hope;
  }
}

/** How demanding a request is for these resources. */
export function demandOf({ inputTokens }: AdmissionRequest, { thresholds }: Group): number {
  let demand = 0;
  for (const threshold of thresholds) if (inputTokens >= threshold) demand++;
  return demand;
}

function isHope({ live, awaited }: Resource): boolean {
  return live || awaited;
}
