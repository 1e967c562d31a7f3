import type { Clock, Timer } from "@iop/wire";

import type { AdmissionRequest, Grant, QueueSettings, Ticket } from "./admission.ts";
import { ArrivalList } from "./arrival-list.ts";
import type { Catalog } from "./catalog.ts";
import { EdgeError } from "./edge-error.ts";
import type { Group, Lane, Waiter } from "./lanes.ts";
import { Lanes, demandOf } from "./lanes.ts";
import type { LedgerWatcher } from "./resource-ledger.ts";
import type { Resource } from "./resource.ts";

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
  #lanes: Lanes;
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
    this.#lanes = new Lanes(options.catalog, options.clock);
  }

  /** Requests that wait, over all models. */
  get waiting(): number {
    return this.#waiting;
  }

  /** Requests that wait for `model`. */
  waitingFor(model: string): number {
    return this.#lanes.waitingFor(model);
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
    const lane = this.#lanes.lane(request.model, request.operation);
    const resource = this.#select(lane, request);
    if (resource !== undefined) {
      const grant = this.#grant(lane, resource, request.inputTokens, ticket);
      if (!resource.hasRoom(0)) this.#lanes.see(resource);
      return Promise.resolve(grant);
    }
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
    const waiters: Waiter[] = [];
    for (const group of this.#lanes.groups) {
      group.grace?.cancel();
      waiters.push(...group.line.all());
    }
    this.#lanes = new Lanes(catalog, this.#clock);
    apply();
    waiters.sort((a, b) => a.arrival - b.arrival);
    const moved = new Set<Group>();
    for (const waiter of waiters) {
      // It may have left meanwhile.
      if (!takeOut(waiter)) continue;
      try {
        waiter.lane = this.#lanes.lane(waiter.request.model, waiter.request.operation);
        waiter.lane.state.waiting++;
        waiter.demand = demandOf(waiter.request, waiter.lane.group);
        waiter.place = waiter.lane.group.line.add(waiter);
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
    for (const group of this.#lanes.groups) {
      group.grace?.cancel();
      for (const waiter of group.line.all()) this.#end(waiter, error);
    }
  }

  // -------------------------------------------------------------------------------------------
  // For the ledger

  room(resource: Resource): void {
    const view = this.#lanes.view(resource);
    if (view === undefined) return;
    const fits = ({ request }: Waiter): boolean => resource.hasRoom(request.inputTokens);
    while (resource.hasRoom(0)) {
      let best: Waiter | undefined;
      for (const { line } of view.groups) {
        if (line.size > 0) best = line.next(fits, best);
      }
      if (best === undefined) break;
      const { lane, ticket, request } = best;
      takeOut(best);
      this.#leave(best);
      best.resolve(this.#grant(lane, resource, request.inputTokens, ticket));
    }
    this.#lanes.see(resource, view);
  }

  changed(resources: Iterable<Resource>): void {
    const seen: Resource[] = [];
    const groups = new Set<Group>();
    // First what they are now, all of them; then who gets what.
    for (const resource of resources) {
      const view = this.#lanes.view(resource);
      if (view === undefined) continue;
      this.#lanes.see(resource, view);
      seen.push(resource);
      for (const group of view.groups) groups.add(group);
    }
    for (const resource of seen) this.room(resource);
    for (const group of groups) this.#reconsider(group);
  }

  // -------------------------------------------------------------------------------------------

  #select(
    { group, candidates, weights }: Lane,
    { inputTokens, preferred }: AdmissionRequest,
  ): Resource | undefined {
    if (preferred !== undefined && candidates.has(preferred) && preferred.hasRoom(inputTokens))
      return preferred;
    return group.open.leastLoaded(inputTokens, weights);
  }

  #grant(lane: Lane, resource: Resource, inputTokens: number, ticket: Ticket): Grant {
    const candidate = lane.candidates.get(resource);
    const path = typeof lane.path === "string" ? lane.path : lane.path.get(resource);
    const lease = resource.acquire(inputTokens);
    if (candidate === undefined || path === undefined || lease === undefined)
      throw new EdgeError("internal", "a place was granted that is none");
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
      place: undefined,
      deadline: undefined,
      withdraw: undefined,
      resolve,
      reject,
    };
    waiter.place = group.line.add(waiter);
    waiter.deadline = this.#deadlines.insert(waiter);
    if (this.#deadlines.first === waiter.deadline) this.#watchDeadlines();
    this.#waiting++;
    lane.state.waiting++;
    ticket.position ||= group.line.upTo(priority);
    ticket.admitted = true;
    if (signal !== undefined) {
      waiter.withdraw = () => this.#end(waiter, withdrawn());
      signal.addEventListener("abort", waiter.withdraw);
    }
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
    if (withdraw !== undefined) request.signal?.removeEventListener("abort", withdraw);
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
function takeOut({ lane, place }: Waiter): boolean {
  return place !== undefined && lane.group.line.remove(place);
}

function unavailable(model: string): EdgeError {
  return new EdgeError("unavailable", `no provider of model ${JSON.stringify(model)} is connected`);
}

function withdrawn(): EdgeError {
  return new EdgeError("cancelled", "withdrawn by the caller");
}
