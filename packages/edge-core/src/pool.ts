import type { Clock, Timer } from "@iop/wire";

import type { AdmissionRequest, Grant, QueueSettings, Ticket } from "./admission.ts";
import type { Place } from "./arrival-list.ts";
import { ArrivalList } from "./arrival-list.ts";
import type { Candidate, Catalog, CatalogModel } from "./catalog.ts";
import { operationPath } from "./catalog.ts";
import { EdgeError } from "./edge-error.ts";
import { OpenResources } from "./open-resources.ts";
import type { LedgerWatcher } from "./resource-ledger.ts";
import type { Resource } from "./resource.ts";
import type { Standing, Waiting } from "./waiting-line.ts";
import { WaitingLine, isBefore } from "./waiting-line.ts";

/** One way of a model to one operation. */
interface Offer {
  readonly view: View;
  readonly candidate: Candidate;
  readonly path: string;
}

/** What is known of a model: how many wait for it, and its lanes by operation. */
interface ModelState {
  readonly model: CatalogModel;
  waiting: number;
  readonly lanes: Map<string, Lane>;
}

/** A model for one operation: what can serve it, by resource. */
interface Lane {
  readonly state: ModelState;
  readonly offers: ReadonlyMap<Resource, Offer>;
  /** Undefined where all are 1. */
  readonly weights: ReadonlyMap<Resource, number> | undefined;
  readonly group: Group;
}

/** The lanes that share the same resources, whatever models they are of; those who wait for them stand in one line. */
interface Group {
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
interface View {
  hope: boolean;
  open: boolean;
  readonly groups: Group[];
}

interface Waiter extends Waiting {
  readonly request: AdmissionRequest;
  readonly ticket: Ticket;
  readonly since: number;
  lane: Lane;
  demand: number;
  standing: Standing<Waiter> | undefined;
  deadline: Place<Waiter> | undefined;
  readonly withdraw: () => void;
  readonly resolve: (grant: Grant) => void;
  readonly reject: (error: EdgeError) => void;
}

/**
 * Who gets which provider. A request takes the least loaded provider that has room; where none has, it
 * waits, and a place that becomes free goes to the oldest waiter of the highest priority over all models that
 * it can serve. Everything happens in the turn of its cause, so no two requests see the same place.
 *
 * The cost of a grant depends neither on how many nodes there are nor on how many requests wait: models with
 * the same providers share a line, and providers with room are kept apart from those without.
 */
export class Pool implements LedgerWatcher {
  readonly #clock: Clock;
  readonly #settings: QueueSettings;
  #catalog: Catalog;
  #models = new Map<string, ModelState>();
  #groups = new Map<string, Group>();
  #views = new Map<Resource, View>();
  #numbers = new Map<Resource, number>();
  #waiting = 0;
  /** All who wait: in the order of arrival, and so of their deadlines. */
  readonly #deadlines = new ArrivalList<Waiter>();
  /** For the first of them, or one that was. */
  #deadline: Timer | undefined;
  #arrivals = 0;
  #closed: EdgeError | undefined;

  constructor(options: {
    readonly clock: Clock;
    readonly settings: QueueSettings;
    readonly catalog: Catalog;
  }) {
    this.#clock = options.clock;
    this.#settings = options.settings;
    this.#catalog = options.catalog;
  }

  /** Requests that wait, over all models. */
  get waiting(): number {
    return this.#waiting;
  }

  /** Requests that wait for `model`. */
  waitingFor(model: string): number {
    return this.#models.get(model)?.waiting ?? 0;
  }

  /** A place at the end of the order of arrival. */
  ticket(): Ticket {
    const startedAt = this.#clock.now();
    const deadlineAt = startedAt + this.#settings.timeoutMs;
    return { arrival: ++this.#arrivals, deadlineAt, startedAt, position: 0, admitted: false };
  }

  /**
   * Resolves with a place on a provider, at once or when it is this request's turn. Between the grant and the
   * caller's turn the place may be lost again: the lease then is not `held`.
   * @throws EdgeError `unknown_model`, `unsupported_operation`, `unavailable` (no provider of it is live),
   *   `queue_full`, `queue_timeout`, `draining`, `cancelled`.
   */
  acquire(request: AdmissionRequest, ticket: Ticket): Promise<Grant> {
    try {
      return this.#admit(request, ticket);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  #admit(request: AdmissionRequest, ticket: Ticket): Promise<Grant> {
    if (this.#closed !== undefined) throw this.#closed;
    if (request.signal?.aborted === true) throw withdrawn();
    const lane = this.#lane(request.model, request.operation);
    const resource = this.#select(lane, request);
    if (resource !== undefined)
      return Promise.resolve(this.#grant(lane, resource, request.inputTokens, ticket));
    if (ticket.deadlineAt <= this.#clock.now()) throw this.#timedOut(ticket);
    if (lane.group.hopes === 0 && this.#settings.offlineGraceMs === 0)
      throw unavailable(lane.state.model.key);
    if (this.#waiting >= this.#settings.maxWaiting && !ticket.admitted) {
      throw new EdgeError("queue_full", `${this.#waiting} requests wait already, the most that may`);
    }
    return this.#wait(lane, request, ticket);
  }

  /**
   * Another configuration holds: who waits now waits for what it offers, in the same order. `apply` is what else
   * follows from it: nobody is granted anything, or given up, before that is done.
   */
  reconfigure(catalog: Catalog, apply: () => void = () => {}): void {
    this.#catalog = catalog;
    const waiters: Waiter[] = [];
    for (const group of this.#groups.values()) {
      group.grace?.cancel();
      waiters.push(...group.line.all());
    }
    this.#models = new Map();
    this.#groups = new Map();
    this.#views = new Map();
    this.#numbers = new Map();
    apply();
    waiters.sort((a, b) => a.arrival - b.arrival);
    const moved = new Set<Group>();
    for (const waiter of waiters) {
      // It may have left meanwhile.
      if (!takeOut(waiter)) continue;
      try {
        waiter.lane = this.#lane(waiter.request.model, waiter.request.operation);
        waiter.lane.state.waiting++;
        waiter.demand = demandOf(waiter.request, waiter.lane.group);
        waiter.standing = waiter.lane.group.line.add(waiter);
        moved.add(waiter.lane.group);
      } catch (error) {
        // Its old lane's count goes with the lane.
        this.#leave(waiter);
        waiter.reject(EdgeError.is(error) ? error : unavailable(waiter.request.model));
      }
    }
    for (const resource of new Set([...moved].flatMap((group) => group.resources))) this.room(resource);
    for (const group of moved) this.#reconsider(group);
  }

  /** Ends all who wait, and all who come, with `error`. */
  close(error: EdgeError): void {
    this.#closed ??= error;
    for (const group of this.#groups.values()) {
      group.grace?.cancel();
      for (const waiter of group.line.all()) this.#end(waiter, error);
    }
  }

  // -------------------------------------------------------------------------------------------
  // For the ledger

  room(resource: Resource): void {
    const view = this.#views.get(resource);
    if (view === undefined) return;
    while (resource.hasRoom(0)) {
      const fits = ({ request }: Waiter): boolean => resource.hasRoom(request.inputTokens);
      let best: Waiter | undefined;
      for (const { line } of view.groups) {
        if (line.size === 0) continue;
        const next = line.next(fits);
        if (next !== undefined && (best === undefined || isBefore(next, best))) best = next;
      }
      if (best === undefined) break;
      const { lane, ticket, request } = best;
      takeOut(best);
      this.#leave(best);
      best.resolve(this.#grant(lane, resource, request.inputTokens, ticket));
    }
    this.#see(resource, view);
  }

  changed(resources: Iterable<Resource>): void {
    const seen: Resource[] = [];
    const groups = new Set<Group>();
    // First what they are now, all of them; then who gets what.
    for (const resource of resources) {
      const view = this.#views.get(resource);
      if (view === undefined) continue;
      this.#see(resource, view);
      seen.push(resource);
      for (const group of view.groups) groups.add(group);
    }
    for (const resource of seen) this.room(resource);
    for (const group of groups) this.#reconsider(group);
  }

  // -------------------------------------------------------------------------------------------

  #lane(key: string, operation: string): Lane {
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
    const candidates = new Map<Resource, { readonly candidate: Candidate; readonly path: string }>();
    for (const candidate of model.candidates) {
      const { profile, resource } = candidate.provider;
      const path = operationPath(profile, operation);
      if (path !== undefined && !candidates.has(resource)) candidates.set(resource, { candidate, path });
    }
    if (candidates.size === 0) {
      const name = JSON.stringify(model.key);
      throw new EdgeError("unsupported_operation", `no provider of model ${name} offers ${operation}`);
    }
    const group = this.#group([...candidates.keys()]);
    const offers = new Map<Resource, Offer>();
    for (const [resource, offer] of candidates)
      offers.set(resource, { ...offer, view: this.#view(resource) });
    const weights = new Map([...offers].map(([resource, { candidate }]) => [resource, candidate.weight]));
    const even = [...weights.values()].every((weight) => weight === 1);
    const lane: Lane = { state, offers, weights: even ? undefined : weights, group };
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
  #see(resource: Resource, view: View): void {
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

  #select(
    { group, offers, weights }: Lane,
    { inputTokens, preferred }: AdmissionRequest,
  ): Resource | undefined {
    if (preferred !== undefined && offers.has(preferred) && preferred.hasRoom(inputTokens)) return preferred;
    return group.open.leastLoaded(inputTokens, weights);
  }

  #grant({ offers }: Lane, resource: Resource, inputTokens: number, ticket: Ticket): Grant {
    const offer = offers.get(resource);
    const lease = resource.acquire(inputTokens);
    if (offer === undefined || lease === undefined)
      throw new EdgeError("internal", "a place was granted that is none");
    const { candidate, path, view } = offer;
    this.#see(resource, view);
    ticket.admitted = true;
    const { position, startedAt } = ticket;
    return { candidate, path, lease, position, waitedMs: this.#clock.now() - startedAt };
  }

  #wait(lane: Lane, request: AdmissionRequest, ticket: Ticket): Promise<Grant> {
    const { promise, resolve, reject } = Promise.withResolvers<Grant>();
    const { priority, signal } = request;
    const { group } = lane;
    const waiter: Waiter = {
      priority,
      demand: demandOf(request, group),
      arrival: ticket.arrival,
      request,
      ticket,
      since: ticket.admitted ? this.#clock.now() : ticket.startedAt,
      lane,
      standing: undefined,
      deadline: undefined,
      withdraw: () => this.#end(waiter, withdrawn()),
      resolve,
      reject,
    };
    waiter.standing = group.line.add(waiter);
    waiter.deadline = this.#deadlines.insert(waiter);
    if (this.#deadlines.first === waiter.deadline) this.#watchDeadlines();
    this.#waiting++;
    lane.state.waiting++;
    ticket.position ||= group.line.upTo(priority);
    ticket.admitted = true;
    signal?.addEventListener("abort", waiter.withdraw);
    // One that comes now is not the first to be given up.
    if (group.hopes === 0 && group.grace === undefined) this.#reconsider(group);
    return promise;
  }

  /** One timer for all: the first deadline is that of the oldest. */
  #watchDeadlines(): void {
    this.#deadline?.cancel();
    this.#deadline = undefined;
    const now = this.#clock.now();
    for (let first = this.#deadlines.first; first !== undefined; first = this.#deadlines.first) {
      const { ticket } = first.item;
      if (ticket.deadlineAt > now) {
        this.#deadline = this.#clock.setTimer(() => this.#watchDeadlines(), ticket.deadlineAt - now);
        return;
      }
      this.#end(first.item, this.#timedOut(ticket));
    }
  }

  /** The waiters of a group without hope are ended, each when it has waited so for the grace. */
  #reconsider(group: Group): void {
    group.grace?.cancel();
    group.grace = undefined;
    if (group.hopes > 0) return;
    const now = this.#clock.now();
    let next = Number.POSITIVE_INFINITY;
    for (const waiter of group.line.all()) {
      const endsAt = Math.max(group.hopelessAt, waiter.since) + this.#settings.offlineGraceMs;
      if (endsAt <= now) this.#end(waiter, unavailable(waiter.request.model));
      else next = Math.min(next, endsAt);
    }
    if (group.line.size > 0)
      group.grace = this.#clock.setTimer(() => {
        this.#reconsider(group);
      }, next - now);
  }

  #end(waiter: Waiter, error: EdgeError): void {
    if (!takeOut(waiter)) return;
    this.#leave(waiter);
    waiter.reject(error);
  }

  #timedOut({ startedAt }: Ticket): EdgeError {
    const waitedMs = Math.round(this.#clock.now() - startedAt);
    return new EdgeError("queue_timeout", `no provider was free within ${waitedMs} ms`);
  }

  /** Of one that has been taken out of its line. */
  #leave({ request, lane, deadline, withdraw }: Waiter): void {
    request.signal?.removeEventListener("abort", withdraw);
    if (deadline !== undefined) this.#deadlines.remove(deadline);
    this.#waiting--;
    if (this.#waiting === 0) {
      this.#deadline?.cancel();
      this.#deadline = undefined;
    }
    lane.state.waiting--;
  }
}

/** False where it stands in no line any more. */
function takeOut({ lane, standing }: Waiter): boolean {
  return standing !== undefined && lane.group.line.remove(standing);
}

function demandOf({ inputTokens }: AdmissionRequest, { thresholds }: Group): number {
  let demand = 0;
  for (const threshold of thresholds) if (inputTokens >= threshold) demand++;
  return demand;
}

function isHope({ live, awaited }: Resource): boolean {
  return live || awaited;
}

function unavailable(model: string): EdgeError {
  return new EdgeError("unavailable", `no provider of model ${JSON.stringify(model)} is connected`);
}

function withdrawn(): EdgeError {
  return new EdgeError("cancelled", "withdrawn by the caller");
}
