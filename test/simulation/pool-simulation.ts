import { ProviderHealth } from "@iop/wire";

import { EdgeError } from "../../packages/edge-core/src/edge-error.ts";
import type { Grant } from "../../packages/edge-core/src/admission.ts";
import type { Resource } from "../../packages/edge-core/src/resource.ts";
import type { Shape } from "../../packages/edge-core/test/pool-world.ts";
import { PoolWorld } from "../../packages/edge-core/test/pool-world.ts";
import { passedOver } from "./grant-order.ts";
import type { Job } from "./job.ts";
import type { Given } from "./ledger-audit.ts";
import { LedgerAudit, nameOf } from "./ledger-audit.ts";
import { Random } from "./random.ts";
import { INPUT_TOKENS, MODELS, OPERATION, anyShape, changed, offersOf } from "./shapes.ts";
import { SimulatedClock } from "./simulated-clock.ts";
import type { Tally } from "./trace.ts";
import { Trace } from "./trace.ts";

/** Promise jobs from a grant to its dispatcher's turn, and some. */
const TURNS = 12;

/**
 * Requests, nodes and configurations that do what they like, to a pool and its ledger, against what must hold
 * after every step. A step is one to three operations in one turn. Repeats for the same seed.
 */
export class PoolSimulation {
  readonly #random: Random;
  readonly #clock = new SimulatedClock();
  readonly #world: PoolWorld;
  readonly #trace: Trace = new Trace();
  readonly #audit = new LedgerAudit((what) => this.#trace.fail(what));
  readonly #maxWaiting: number;
  readonly #timeoutMs: number;
  readonly #graceMs: number;
  #shape: Shape;
  /** Counts configurations: a request that one of them has moved is another matter for the order. */
  #configuration = 0;
  #jobs: Job[] = [];
  /** Leases of the past, for what comes late. */
  #late: Job[] = [];
  /** Places that nobody has taken up. */
  readonly #untaken = new Set<Given>();
  /** Who got which place, in this step. */
  readonly #takers = new Map<Given, Job>();
  /** A failure within a promise job. */
  #broken: Error | undefined;
  #names = 0;
  #offers = new Map<string, ReadonlySet<Resource>>();

  constructor(seed: number) {
    this.#random = new Random(seed);
    this.#shape = anyShape(this.#random);
    this.#maxWaiting = 2 + this.#random.below(30);
    this.#timeoutMs = 500 + this.#random.below(20_000);
    this.#graceMs = this.#random.once(2) ? 0 : 1 + this.#random.below(3_000);
    this.#world = new PoolWorld(this.#clock, this.#shape, {
      maxWaiting: this.#maxWaiting,
      timeoutMs: this.#timeoutMs,
      offlineGraceMs: this.#graceMs,
    });
    this.#look();
  }

  /** @throws SimulationFailure */
  async run(steps: number): Promise<Tally> {
    this.#world.online(...Object.keys(this.#shape.nodes));
    for (let step = 0; step < steps; step++) {
      const waited = this.#in("asking");
      const configuration = this.#configuration;
      for (let more = 1 + (this.#random.once(3) ? 1 + this.#random.below(2) : 0); more > 0; more--) {
        this.#anything();
        this.#audit.compare();
      }
      const given = await this.#settle();
      this.#checkOrder(given, waited, configuration);
      this.#checkWaiting();
    }
    await this.#end();
    return this.#trace.tally;
  }

  // -------------------------------------------------------------------------------------------
  // What can happen

  #anything(): void {
    const draw = this.#random.below(100);
    if (draw < 34) this.#submit();
    else if (draw < 56) this.#terminal();
    else if (draw < 64) this.#cancel();
    else if (draw < 70) this.#refuse();
    else if (draw < 74) this.#quarantine();
    else if (draw < 78) this.#comeLate();
    else if (draw < 86) this.#pass();
    else if (draw < 90) this.#report();
    else if (draw < 92) this.#disconnect();
    else if (draw < 96) this.#connect();
    else if (draw < 97) this.#hold();
    else if (draw < 98) this.#drain();
    else this.#reload();
  }

  #submit(): void {
    const abort = new AbortController();
    const job: Job = {
      name: this.#names++,
      abort,
      request: {
        model: this.#random.one(this.#random.once(20) ? MODELS : Object.keys(this.#shape.models)) ?? "",
        operation: OPERATION,
        priority: this.#random.once(3) ? this.#random.below(3) : 0,
        inputTokens: this.#random.one(INPUT_TOKENS) ?? 0,
        signal: abort.signal,
      },
      ticket: this.#world.pool.ticket(),
      stage: "over",
      lease: undefined,
      resource: undefined,
      outcome: undefined,
      attempts: 0,
    };
    const { model, priority, inputTokens } = job.request;
    this.#trace.did(`submit ${job.name}: ${model}, priority ${priority}, ${inputTokens} tokens`);
    this.#jobs.push(job);
    this.#ask(job);
  }

  #terminal(): void {
    const job = this.#random.one(this.#in("running", "leaving", "lingering"));
    if (job?.lease === undefined) return;
    this.#trace.did(`terminal ${job.name}`);
    this.#audit.release(job.lease);
    this.#over(job, job.stage === "running" ? "completed" : "cancelled");
  }

  #cancel(): void {
    const job = this.#random.one(this.#jobs);
    if (job === undefined) return;
    this.#trace.did(`cancel ${job.name}, ${job.stage}`);
    job.abort.abort();
    if (job.stage === "running") job.stage = "leaving";
  }

  #refuse(): void {
    const job = this.#random.one(this.#in("running"));
    if (job?.lease === undefined) return;
    this.#trace.did(`refuse ${job.name}`);
    this.#audit.refuse(job.lease);
    this.#ask(job);
  }

  #quarantine(): void {
    const job = this.#random.one(this.#in("leaving"));
    if (job?.lease === undefined) return;
    this.#trace.did(`quarantine ${job.name}`);
    this.#audit.quarantine(job.lease);
    job.stage = "lingering";
  }

  /** A lease that has been returned is returned again. */
  #comeLate(): void {
    const job = this.#random.one(this.#late);
    if (job?.lease === undefined) return;
    const how = this.#random.one(["release", "refused", "quarantine"] as const) ?? "release";
    this.#trace.did(`late ${how} ${job.name}`);
    job.lease[how]();
  }

  #pass(): void {
    const ms = this.#random.one([1, 10, 100, 1_000, this.#graceMs, this.#timeoutMs]) ?? 1;
    this.#trace.did(`${ms} ms pass`);
    this.#clock.advance(ms);
  }

  #report(): void {
    const resource = this.#random.one(this.#resources());
    if (resource === undefined) return;
    const { OK, DEGRADED, OFFLINE } = ProviderHealth;
    const health = this.#random.one([OK, OK, DEGRADED, OFFLINE]) ?? OK;
    const capacity = this.#random.below(4);
    this.#trace.did(`report ${nameOf(resource)}: health ${health}, capacity ${capacity}`);
    this.#world.report(nameOf(resource), health, capacity);
  }

  #disconnect(): void {
    const node = this.#random.one(this.#online());
    if (node === undefined) return;
    this.#trace.did(`disconnect ${node}`);
    this.#lose(node);
    this.#world.offline(node);
  }

  #connect(): void {
    const nodes = Object.keys(this.#shape.nodes);
    const offline = nodes.filter((each) => this.#world.generation(each) === undefined);
    const node = this.#random.one(offline.length > 0 ? offline : nodes);
    if (node === undefined) return;
    this.#trace.did(`connect ${node}`);
    this.#lose(node);
    this.#world.online(node);
  }

  #drain(): void {
    const node = this.#random.one(this.#online());
    if (node === undefined) return;
    this.#trace.did(`drain ${node}`);
    this.#world.drain(node);
  }

  #hold(): void {
    const resource = this.#random.one(this.#resources());
    const generation = resource && this.#world.generation(resource.node);
    if (resource === undefined || generation === undefined) return;
    const what = this.#random.below(4);
    this.#trace.did(`hold ${nameOf(resource)} ${what}`);
    if (what > 1) this.#world.ledger.accept(resource.node, generation, resource.provider);
    else
      this.#world.ledger.hold(resource.node, generation, resource.provider, {
        reason: "it changes",
        pending: what === 0,
      });
  }

  #reload(): void {
    const before = this.#shape;
    this.#shape = changed(this.#random, before);
    this.#configuration++;
    this.#trace.did(`reload ${JSON.stringify(this.#shape)}`);
    this.#world.reload(this.#shape, () => {
      this.#look();
      for (const node of this.#online()) if (this.#shape.nodes[node] === undefined) this.#world.drain(node);
    });
    // A node without a connection of its own any more is let go.
    for (const node of this.#online()) {
      if (this.#shape.nodes[node] !== undefined || this.#random.once(2)) continue;
      this.#lose(node);
      this.#world.offline(node);
    }
  }

  // -------------------------------------------------------------------------------------------
  // The dispatcher's part

  #ask(job: Job): void {
    job.stage = "asking";
    job.attempts++;
    const preferred = this.#random.once(4) ? this.#random.one(this.#resources()) : undefined;
    this.#world.pool
      .acquire({ ...job.request, preferred }, job.ticket)
      .then((grant) => this.#granted(job, grant))
      .catch((error: unknown) => {
        if (!EdgeError.is(error)) throw error;
        this.#over(job, error.code);
      })
      .catch((error: unknown) => {
        this.#broken ??= error instanceof Error ? error : new Error("something was thrown", { cause: error });
      });
  }

  #granted(job: Job, { candidate, lease }: Grant): void {
    if (job.stage !== "asking") this.#trace.fail(`${job.name} is ${job.stage} and was granted a place`);
    const { resource } = candidate.provider;
    let mine: Given | undefined;
    for (const given of this.#untaken) if (given.lease === lease) mine = given;
    if (mine === undefined) this.#trace.fail(`${job.name} was granted a place that is another's`);
    this.#untaken.delete(mine);
    if (mine.resource !== resource)
      this.#trace.fail(`${job.name} was granted a place elsewhere than it was told`);
    this.#takers.set(mine, job);
    job.lease = lease;
    job.resource = resource;
    if (job.abort.signal.aborted) {
      this.#audit.release(lease);
      this.#over(job, "cancelled");
    } else if (!lease.held || !resource.live) {
      this.#trace.count("lost before it was sent");
      this.#audit.release(lease);
      this.#ask(job);
    } else job.stage = "running";
  }

  #over(job: Job, outcome: string): void {
    if (job.outcome !== undefined)
      this.#trace.fail(`${job.name} ended as ${job.outcome} and again as ${outcome}`);
    job.stage = "over";
    job.outcome = outcome;
    this.#trace.count(outcome);
    if (job.attempts > 1) this.#trace.count("came back");
    this.#jobs = this.#jobs.filter((each) => each !== job);
    if (job.lease === undefined) return;
    this.#late.push(job);
    if (this.#late.length > 20) this.#late.shift();
  }

  /** What runs on `node` ends with its connection. */
  #lose(node: string): void {
    this.#audit.fence(node);
    for (const job of this.#in("running", "leaving", "lingering"))
      if (job.resource?.node === node) this.#over(job, "node_disconnected");
  }

  /** Lets every promise job run. Answers what was given out since the last time. */
  async #settle(): Promise<readonly Given[]> {
    const all: Given[] = [];
    for (let turn = 0; turn < TURNS; turn++) {
      for (const given of this.#audit.given) this.#untaken.add(given);
      all.push(...this.#audit.given);
      if (this.#audit.given.length > 0) turn = 0;
      this.#audit.given = [];
      await Promise.resolve();
      if (this.#broken !== undefined) throw this.#broken;
    }
    return all;
  }

  // -------------------------------------------------------------------------------------------
  // What must hold

  /** Of those who waited all along, nobody was passed over by one who comes after it. */
  #checkOrder(given: readonly Given[], waited: readonly Job[], configuration: number): void {
    for (const each of this.#untaken)
      this.#trace.fail(`a place of ${nameOf(each.resource)} was given to nobody`);
    if (configuration === this.#configuration) {
      const wrong = passedOver({
        given,
        takers: this.#takers,
        waited,
        serves: (resource, { request }) => this.#offers.get(request.model)?.has(resource) === true,
      });
      if (wrong !== undefined) this.#trace.fail(wrong);
    }
    this.#takers.clear();
  }

  #checkWaiting(): void {
    const asking = this.#in("asking");
    const { pool } = this.#world;
    if (pool.waiting !== asking.length) this.#trace.fail(`${pool.waiting} wait; ${asking.length} do`);
    for (const model of MODELS) {
      const count = asking.filter(({ request }) => request.model === model).length;
      if (pool.waitingFor(model) !== count)
        this.#trace.fail(`${pool.waitingFor(model)} wait for ${model}; ${count} do`);
    }
    if (asking.filter(({ attempts }) => attempts === 1).length > this.#maxWaiting)
      this.#trace.fail(`more wait than may`);
    for (const job of asking) {
      if (job.abort.signal.aborted) this.#trace.fail(`${job.name} is withdrawn and waits`);
      if (job.ticket.deadlineAt <= this.#clock.now())
        this.#trace.fail(`${job.name} waits beyond its deadline`);
      const offers = [...(this.#offers.get(job.request.model) ?? [])];
      for (const resource of offers)
        if (resource.hasRoom(job.request.inputTokens))
          this.#trace.fail(`${job.name} waits while ${nameOf(resource)} has room`);
      if (this.#graceMs === 0 && !offers.some(({ live, awaited }) => live || awaited))
        this.#trace.fail(`${job.name} waits for nobody`);
    }
    this.#trace.count("steps");
    if (asking.length > 0) this.#trace.count("steps with waiters");
  }

  async #end(): Promise<void> {
    this.#trace.did("the end");
    this.#world.pool.close(new EdgeError("draining", "the end"));
    await this.#settle();
    for (const node of this.#online()) {
      this.#lose(node);
      this.#world.offline(node);
    }
    await this.#settle();
    this.#audit.compare();
    if (this.#jobs.length > 0) this.#trace.fail(`${this.#jobs.length} never ended`);
    if (this.#world.pool.waiting > 0) this.#trace.fail("somebody still waits");
    if (this.#audit.out > 0) this.#trace.fail(`${this.#audit.out} places are out`);
    this.#clock.advance(5_000);
    if (this.#clock.pending > 0) this.#trace.fail(`${this.#clock.pending} timers are left`);
  }

  // -------------------------------------------------------------------------------------------

  #in(...stages: readonly Job["stage"][]): Job[] {
    return this.#jobs.filter(({ stage }) => stages.includes(stage));
  }

  #online(): string[] {
    return ["n0", "n1", "n2"].filter((node) => this.#world.generation(node) !== undefined);
  }

  #resources(): Resource[] {
    return this.#world.catalog.nodes.flatMap(({ providers }) => providers.map(({ resource }) => resource));
  }

  /** Takes in the configuration that holds now. */
  #look(): void {
    for (const resource of this.#resources()) this.#audit.watch(resource);
    this.#offers = offersOf(this.#world.catalog);
  }
}
