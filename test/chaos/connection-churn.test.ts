import { create } from "@bufbuild/protobuf";
import {
  DEFAULT_FLOW_LIMITS,
  GoAwayCode,
  NodeReadyRequestSchema,
  ProviderHealth,
  RegisterRequestSchema,
  Session,
  WireError,
  realClock,
} from "@iop/wire";
import { tcp } from "@iop/wire/tcp";
import { readFile, readdir } from "node:fs/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { brief, chat } from "../support/chat.ts";
import { type Stack, startStack } from "../support/stack.ts";

const CONNECTIONS = 1_000;
const PARTS = 2;
/** Connections at a time; they contend for the node. */
const AT_ONCE = 2;
/** So that garbage is collected before it looks like a leak. */
const SMALL_HEAP = "--max-semi-space-size=1 --max-old-space-size=32";
const MIB = 1024 * 1024;

/** How far a connection comes before it vanishes. */
const STAGES = ["dialled", "registering", "registered", "becoming ready", "ready", "working"] as const;
type Stage = (typeof STAGES)[number];

let stack: Stack;
beforeAll(async () => {
  stack = await startStack({ start: "edge", capacity: 1_000, edgeEnv: { NODE_OPTIONS: SMALL_HEAP } });
});
afterAll(() => stack[Symbol.asyncDispose]());

/** Lets one connection come as far as `stage`, and ends it, with a word if `polite`. @returns how far it came. */
async function live(stage: Stage, instanceId: string, polite: boolean): Promise<Stage | "refused"> {
  const connection = await tcp({ host: "127.0.0.1", port: stack.nodesPort }).dial({
    signal: AbortSignal.timeout(5_000),
  });
  const work = Promise.withResolvers<void>();
  const over = Promise.withResolvers<void>();
  const session = new Session({
    connection,
    role: "node",
    clock: realClock,
    maxFrameBytes: MIB,
    handlers: {
      message: () => {},
      opened: () => work.resolve(),
      closed: () => over.resolve(),
    },
  });
  const end = async (): Promise<void> => {
    if (polite) session.close(GoAwayCode.DRAINING, "enough");
    else session.destroy(new WireError("closed", "gone"));
    await over.promise;
  };
  try {
    if (stage === "dialled") return stage;
    const registering = session.request(
      {
        case: "registerRequest",
        value: create(RegisterRequestSchema, {
          token: stack.token,
          nodeName: "node-1",
          instanceId,
          protocolVersion: 1,
        }),
      },
      "registerResponse",
      { timeoutMs: 5_000 },
    );
    if (stage === "registering") {
      registering.catch(() => {});
      return stage;
    }
    const { value } = await registering;
    if (!value.accepted) return "refused";
    session.agree({ ...DEFAULT_FLOW_LIMITS, ...value.limits });
    if (stage === "registered") return stage;
    const becoming = session.request(
      {
        case: "nodeReadyRequest",
        value: create(NodeReadyRequestSchema, {
          nodeId: "node-1",
          configRevision: value.config?.revision ?? 0n,
          providers: [{ id: "p1", health: ProviderHealth.OK, maxConcurrency: 1_000 }],
        }),
      },
      "nodeReadyResponse",
      { timeoutMs: 5_000 },
    );
    if (stage === "becoming ready") {
      becoming.catch(() => {});
      return stage;
    }
    await becoming;
    if (stage === "ready") return stage;
    // A request reaches it, or whoever has replaced it, and never gets an answer.
    requests.push(chat(stack).then(brief));
    await Promise.race([work.promise, over.promise]);
    return stage;
  } catch (error) {
    // Another one of the same process has taken its place.
    if (session.error !== undefined) return "refused";
    throw error;
  } finally {
    await end();
  }
}

const requests: Array<Promise<string>> = [];

/** Comes and goes `count` times. @returns how often each stage was reached. */
async function churn(count: number): Promise<Map<Stage | "refused", number>> {
  const reached = new Map<Stage | "refused", number>();
  let index = 0;
  const worker = async (own: number): Promise<void> => {
    while (index < count) {
      const turn = index++;
      const stage = STAGES[turn % STAGES.length] ?? "dialled";
      const instance = Math.random() < 0.5 ? "same" : `worker-${own}-${turn}`;
      const came = await live(stage, instance, Math.random() < 0.5);
      reached.set(came, (reached.get(came) ?? 0) + 1);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, (_, own) => worker(own)));
  return reached;
}

async function descriptors(): Promise<number> {
  return (await readdir(`/proc/${stack.edge.pid}/fd`)).length;
}

/** Resident memory of the Edge, in bytes. */
async function resident(): Promise<number> {
  const status = await readFile(`/proc/${stack.edge.pid}/status`, "utf8");
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1]) * 1024;
}

describe.runIf(process.platform === "linux")("an Edge", () => {
  test(`holds nothing of ${CONNECTIONS} connections that came and went`, async () => {
    await churn(100);
    await Promise.all(requests.splice(0));
    await stack.idle();
    const before = await descriptors();
    const growth: number[] = [];
    const reached = new Map<string, number>();
    let last = await resident();
    for (let part = 0; part < PARTS; part++) {
      for (const [stage, count] of await churn(CONNECTIONS / PARTS))
        reached.set(stage, (reached.get(stage) ?? 0) + count);
      const ends = await Promise.all(requests.splice(0));
      expect(new Set(ends).difference(new Set(["502 whole", "503 whole"]))).toEqual(new Set());
      await stack.idle();
      const now = await resident();
      growth.push(now - last);
      last = now;
    }
    console.info(
      `reached: ${JSON.stringify(Object.fromEntries(reached))}; ` +
        `memory grew by ${growth.map((bytes) => (bytes / MIB).toFixed(1)).join(", then ")} MiB`,
    );
    for (const stage of STAGES) expect(reached.get(stage) ?? 0, stage).toBeGreaterThan(20);
    // The last ones may linger for a second.
    await expect.poll(descriptors, { timeout: 5_000 }).toBeLessThanOrEqual(before);
    // 10 KiB for each connection of the second half.
    expect(growth.at(-1)).toBeLessThan((CONNECTIONS / PARTS) * 10 * 1024);

    await stack.connected(false);
    const { nodes, streams } = await stack.snapshot();
    expect(streams).toBe(0);
    expect(nodes[0]?.providers).toMatchObject([{ status: "unavailable", quarantined: 0 }]);
    await stack.startNode();
    expect(brief(await chat(stack))).toBe("200 whole");
    await stack.idle();
  });
});
