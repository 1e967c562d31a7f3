import { realClock } from "@iop/wire";

import type { Grant } from "../../packages/edge-core/src/admission.ts";
import { EdgeError } from "../../packages/edge-core/src/edge-error.ts";
import type { Shape } from "../../packages/edge-core/test/pool-world.ts";
import { PoolWorld } from "../../packages/edge-core/test/pool-world.ts";
import type { Row } from "./row.ts";

const NODES: readonly number[] = [1, 100, 1_000];
const WAITERS: readonly number[] = [0, 1_000, 10_000];
const MODELS = 100;
/** Over all nodes: the same work is in flight, on more nodes or on fewer. */
const PLACES = 4_000;
/** Rounds that are timed, after as many that are not. */
const ROUNDS = 21;
const GRANTS_PER_ROUND = 5_000;
const GOAL = 4;

/** Which providers the models have. */
const LAYOUTS = {
  /** All of them. */
  "same providers": (_model: number, node: number, _nodes: number): boolean => node >= 0,
  /** Nine in ten, another choice for each model. */
  "providers of each model its own": (model: number, node: number, nodes: number): boolean =>
    nodes === 1 || (node * 7_919 + model * 104_729) % 10 !== (model * 31) % 10 || node === model % nodes,
} as const;

/**
 * Time of one submit, grant and release in the pool, in this process, without a network: with room for all; and
 * with all providers full, where each release grants the oldest waiter and another one joins.
 */
export async function measureDispatch(): Promise<Row[]> {
  const rows: Row[] = [];
  for (const [layout, serves] of Object.entries(LAYOUTS)) {
    const cases = NODES.flatMap((nodes) => WAITERS.map((waiters) => new Case(nodes, waiters, serves)));
    for (const each of cases) await each.fill();
    // Interleaved, so that what disturbs the machine disturbs all of them.
    for (let round = 0; round < 2 * ROUNDS; round++)
      for (const each of cases) {
        const us = await each.round();
        // What else the machine does only adds to the time.
        if (round >= ROUNDS) each.fastest = Math.min(each.fastest, us);
      }
    for (const each of cases) each.close();
    const least = Math.min(...cases.map(({ fastest }) => fastest));
    for (const { nodes, waiters, fastest } of cases) {
      const ratio = fastest / least;
      rows.push({
        what: `µs for a grant, ${layout}: ${nodes} nodes, ${waiters} waiters`,
        direct: "",
        proxy: `(least) ${least.toFixed(2)}`,
        iop: fastest.toFixed(2),
        ratio,
        goal: `<= ${GOAL}`,
        reached: ratio <= GOAL,
      });
    }
  }
  return rows;
}

class Case {
  readonly nodes: number;
  readonly waiters: number;
  /** Microseconds a grant, of the fastest round. */
  fastest: number = Number.POSITIVE_INFINITY;
  readonly #world: PoolWorld;
  /** What is in flight, as a ring: the grant of number n is at n modulo its length. */
  readonly #held: (Grant | undefined)[];
  #granted = 0;
  #released = 0;
  #submitted = 0;

  constructor(
    nodes: number,
    waiters: number,
    serves: (model: number, node: number, nodes: number) => boolean,
  ) {
    this.nodes = nodes;
    this.waiters = waiters;
    this.#held = Array.from({ length: PLACES + 1 }, () => undefined);
    const names = Array.from({ length: nodes }, (_, node) => `n${node}`);
    const shape: Shape = {
      nodes: Object.fromEntries(names.map((name) => [name, { p: PLACES / nodes }])),
      models: Object.fromEntries(
        Array.from({ length: MODELS }, (_, model) => [
          `m${model}`,
          names.filter((_name, node) => serves(model, node, nodes)).map((name) => `${name}/p`),
        ]),
      ),
    };
    this.#world = new PoolWorld(realClock, shape, { maxWaiting: 20_000, timeoutMs: 3_600_000 });
    this.#world.online(...names);
  }

  /** Fills all places and makes as many wait as shall; where nobody shall, half of the places. */
  async fill(): Promise<void> {
    const all = this.waiters === 0 ? PLACES / 2 : PLACES + this.waiters;
    for (let count = 0; count < all; count++) this.#submit();
    await turn();
    if (this.#world.pool.waiting !== this.waiters)
      throw new Error(`${this.#world.pool.waiting} wait, not ${this.waiters}`);
  }

  /** Microseconds a grant. */
  async round(): Promise<number> {
    const startedAt = performance.now();
    for (let count = 0; count < GRANTS_PER_ROUND; count++) {
      const before = this.#granted;
      this.#submit();
      this.#release();
      while (this.#granted === before) await Promise.resolve();
    }
    return ((performance.now() - startedAt) * 1_000) / GRANTS_PER_ROUND;
  }

  /** Ends the waiters, and with them their timer. */
  close(): void {
    this.#world.pool.close(new EdgeError("draining", "the end"));
  }

  /** The oldest of what is in flight. */
  #release(): void {
    const at = this.#released++ % this.#held.length;
    this.#held[at]?.lease.release();
    this.#held[at] = undefined;
  }

  #submit(): void {
    const { pool } = this.#world;
    const request = {
      model: `m${this.#submitted++ % MODELS}`,
      operation: "chat_completions",
      priority: 0,
      inputTokens: 0,
      preferred: undefined,
      signal: undefined,
    };
    pool.acquire(request, pool.ticket()).then(
      (grant) => {
        this.#held[this.#granted++ % this.#held.length] = grant;
      },
      () => {},
    );
  }
}

function turn(): Promise<void> {
  return new Promise((resolve) => {
    setImmediate(resolve);
  });
}
