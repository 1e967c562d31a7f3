import { ProviderHealth } from "@iop/wire";
import type { NodeConfigPayload } from "@iop/wire";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";

import type { Submitted } from "../test/edge-world.ts";
import { EdgeWorld, nodeRecord, provider } from "../test/edge-world.ts";
import type { OpenedTunnel } from "../test/hand-driven-node.ts";
import { HandDrivenNode, sendEnd, sendStart } from "../test/hand-driven-node.ts";
import type { ReloadOptions } from "./edge-options.ts";

async function reload(world: EdgeWorld, options: ReloadOptions): Promise<void> {
  world.edge.reload(options);
  await world.clock.settle();
}

describe("under any order of reloads, work and connections", () => {
  type Step =
    | { readonly do: "reload"; readonly capacities: readonly (number | undefined)[]; readonly node: boolean }
    | { readonly do: "submit"; readonly model: number }
    | { readonly do: "finish" | "cancel"; readonly which: number }
    | { readonly do: "answer"; readonly refused: boolean }
    | { readonly do: "late" | "cut" };
  const step: fc.Arbitrary<Step> = fc.oneof(
    {
      weight: 3,
      arbitrary: fc.record({
        do: fc.constant("reload" as const),
        capacities: fc.array(fc.option(fc.integer({ min: 1, max: 3 }), { nil: undefined }), {
          minLength: 2,
          maxLength: 2,
        }),
        node: fc.oneof({ weight: 5, arbitrary: fc.constant(true) }, fc.constant(false)),
      }),
    },
    { weight: 6, arbitrary: fc.record({ do: fc.constant("submit" as const), model: fc.nat(1) }) },
    {
      weight: 4,
      arbitrary: fc.record({ do: fc.constantFrom("finish" as const, "cancel" as const), which: fc.nat(9) }),
    },
    { weight: 4, arbitrary: fc.record({ do: fc.constant("answer" as const), refused: fc.boolean() }) },
    fc.record({ do: fc.constantFrom("late" as const, "cut" as const) }),
  );
  const IDS = ["p0", "p1"] as const;

  /** One Node that applies what it is told, and what runs on it. */
  class Fleet {
    node: HandDrivenNode | undefined;
    /** What runs at the Node, by the provider that it began on. */
    readonly running: { readonly id: string; readonly work: Submitted; readonly opened: OpenedTunnel }[] = [];
    readonly submitted: Submitted[] = [];
    #seen = 0;
    capacities: readonly (number | undefined)[] = [2, 2];
    /** What the Node has said that it runs. */
    accepted: Readonly<Record<string, number>> = {};
    #revision = 0n;
    readonly world: EdgeWorld;

    constructor(world: EdgeWorld) {
      this.world = world;
    }

    async connect(): Promise<void> {
      this.running.length = 0;
      this.#seen = 0;
      const node = await HandDrivenNode.dial(this.world);
      const { accepted, config: given } = await node.register();
      this.node = undefined;
      if (!accepted || given === undefined) return;
      await node.becomeReady(Object.fromEntries(given.providers.map(({ id }) => [id, 0])), {
        revision: given.revision,
      });
      this.node = node;
      this.#accept(given, []);
    }

    async submit(model: string): Promise<void> {
      this.submitted.push(await this.world.begin({ model, requestId: String(this.submitted.length) }));
    }

    /** Takes in what the Node has been sent since: nothing over the capacity that it has accepted. */
    look(): void {
      if (this.node?.closed !== undefined) this.running.length = 0;
      for (const opened of this.node?.opened.slice(this.#seen) ?? []) {
        this.#seen++;
        const id = opened.request.providerId;
        const capacity = this.capacities[IDS.findIndex((each) => each === id)];
        const before = this.running.filter((work) => work.id === id).length;
        if (before >= (capacity ?? 0)) throw new Error(`${id} had ${before} of ${capacity}`);
        if (this.accepted[id] !== capacity) throw new Error(`${id} has not accepted ${capacity}`);
        const work = this.submitted[Number(opened.request.requestId)];
        if (work === undefined) throw new Error("nobody asked for that");
        // A Node whose connection died with the request on its way runs nothing.
        if (this.node?.closed === undefined) this.running.push({ id, work, opened });
      }
    }

    async answer(refused: readonly string[]): Promise<void> {
      const sent = this.node?.refreshes.at(-1)?.config;
      if (this.node === undefined || sent === undefined) return;
      if (sent.revision !== this.#revision) this.#accept(sent, refused);
      await this.node.answerRefresh(Object.fromEntries(refused.map((id) => [id, "no"])));
      for (const { id } of sent.providers) await this.node.report(id, ProviderHealth.OK);
    }

    #accept(sent: NodeConfigPayload, refused: readonly string[]): void {
      this.#revision = sent.revision;
      const taken = sent.providers.filter(({ id }) => !refused.includes(id));
      this.accepted = Object.fromEntries(taken.map(({ id, capacity }) => [id, capacity]));
    }
  }

  function configured(capacities: readonly (number | undefined)[], node: boolean): ReloadOptions {
    const providers = IDS.flatMap((id, index) => {
      const capacity = capacities[index];
      return capacity === undefined ? [] : [provider(id, { capacity })];
    });
    return {
      nodes: node ? [nodeRecord("n1", "token-1", providers)] : [],
      models: node
        ? providers.map(({ id }) => ({ key: id, candidates: [{ node: "n1", provider: id, target: "t" }] }))
        : [],
    };
  }

  test("leases equal the work that runs, no grant is over the capacity, and all come back", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 40 }), async (steps) => {
        const world = await EdgeWorld.listening(configured([2, 2], true));
        const fleet = new Fleet(world);
        await fleet.connect();
        for (const action of steps) {
          const { node } = fleet;
          if (node?.closed !== undefined || node === undefined) await fleet.connect();
          switch (action.do) {
            case "reload":
              fleet.capacities = action.node ? action.capacities : [undefined, undefined];
              await reload(world, configured(action.capacities, action.node));
              break;
            case "submit":
              await fleet.submit(IDS[action.model] ?? "p0");
              break;
            case "finish":
            case "cancel": {
              const [work] = fleet.running.splice(action.which % Math.max(1, fleet.running.length), 1);
              if (work === undefined) break;
              if (action.do === "cancel") work.work.withdraw();
              sendStart(work.opened);
              sendEnd(work.opened);
              await world.settled(work.work.frames());
              break;
            }
            case "answer":
              await fleet.answer(action.refused ? ["p0"] : []);
              break;
            case "late":
              await world.clock.advance(30_000);
              break;
            case "cut":
              world.transport.links.at(-1)?.cut();
              await world.clock.settle();
              fleet.running.length = 0;
              break;
          }
          await world.clock.settle();
          fleet.look();
          for (const id of IDS) {
            const shown = world.edge
              .snapshot()
              .nodes.flatMap(({ providers }) => providers)
              .filter((each) => each.id === id);
            expect(shown.length).toBeLessThanOrEqual(1);
            const count = (shown[0]?.in_flight.normal ?? 0) + (shown[0]?.quarantined ?? 0);
            expect(count).toBe(fleet.running.filter((work) => work.id === id).length);
          }
        }
        // Whatever came before: the newest configuration is in force once the Node answers.
        await reload(world, configured([2, 3], true));
        for (let round = 0; round < 3; round++) await fleet.answer([]);
        await world.clock.advance(60_000);
        if (fleet.node === undefined || fleet.node.closed !== undefined) await fleet.connect();
        for (let round = 0; round < 3; round++) await fleet.answer([]);
        const [node] = world.edge.snapshot().nodes;
        expect(node).toMatchObject({ providers: [{ status: "available" }, { status: "available" }] });
        const closing = world.edge.close({ drainTimeoutMs: 0 });
        await world.clock.advance(2_000);
        await closing;
        expect(world.edge.snapshot().streams).toBe(0);
        expect(fleet.submitted.filter(({ state }) => state === "pending")).toEqual([]);
      }),
      { numRuns: 150 },
    );
  }, 60_000);
});
