import { createProvider } from "@iop/reference-provider";
import { createHash } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { describe, expect, test } from "vitest";
import { z } from "zod";

import { brief, chat, startStreams } from "../support/chat.ts";
import { MODEL, type Stack, startStack } from "../support/stack.ts";

const provider = z.looseObject({
  id: z.string(),
  adapter: z.string(),
  endpoint: z.string(),
  capacity: z.number().optional(),
});
const edgeFile = z.looseObject({
  edge: z.looseObject({ name: z.string(), heartbeat: z.unknown().optional() }),
  api_keys: z.array(z.object({ name: z.string(), sha256: z.string() })),
  nodes: z.array(
    z.object({ name: z.string(), token: z.object({ sha256: z.string() }), providers: z.array(provider) }),
  ),
  models: z.record(
    z.string(),
    z.object({
      candidates: z.array(z.object({ node: z.string(), provider: z.string(), target: z.string() })),
    }),
  ),
});
type EdgeFile = z.infer<typeof edgeFile>;

/** What the log says when it was, and when it was not. */
const REPORT = "reloaded";

/** Changes the Edge's file, sends SIGHUP, and waits until the log says what came of it. */
async function reload(stack: Stack, change: (file: EdgeFile) => void): Promise<void> {
  const file = edgeFile.parse(JSON.parse(await readFile(stack.edgeFile, "utf8")));
  change(file);
  await writeFile(stack.edgeFile, JSON.stringify(file));
  await hangUp(stack);
}

async function hangUp(stack: Stack): Promise<void> {
  const times = stack.edge.log().split(REPORT).length;
  stack.edge.signal("SIGHUP");
  await stack.edge.logged(REPORT, times);
}

/** Resolves once the Node runs what the Edge has. */
async function applied(stack: Stack, revision: number): Promise<void> {
  await stack.until(({ nodes }) => nodes.every((node) => node.config_revision === revision));
}

function nodeOf(file: EdgeFile): EdgeFile["nodes"][number] {
  const [first] = file.nodes;
  if (first === undefined) throw new Error("no node");
  return first;
}

async function models(stack: Pick<Stack, "http" | "apiKey">): Promise<readonly string[]> {
  const response = await fetch(`${stack.http}/v1/models`, {
    headers: { authorization: `Bearer ${stack.apiKey}` },
  });
  const { data } = z.object({ data: z.array(z.object({ id: z.string() })) }).parse(await response.json());
  return data.map(({ id }) => id);
}

async function ask(stack: Pick<Stack, "http" | "apiKey">, model: string): Promise<number> {
  const response = await fetch(`${stack.http}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${stack.apiKey}`, "content-type": "application/json" },
    body: JSON.stringify({ model, messages: [{ role: "user", content: "hello" }] }),
  });
  await response.arrayBuffer();
  return response.status;
}

describe("SIGHUP to an Edge", () => {
  test("adds a provider and a model, and takes one away under its streams, which end whole", async () => {
    await using other = createProvider();
    const otherUrl = await other.listen();
    await using stack = await startStack();
    const { ends } = await startStreams(stack, 3);

    await reload(stack, (file) => {
      nodeOf(file).providers = [{ id: "p2", adapter: "openai-compat", endpoint: otherUrl }];
      file.models = { second: { candidates: [{ node: "node-1", provider: "p2", target: "iop-demo" }] } };
    });
    await applied(stack, 2);
    await stack.node.logged("reconfigured");
    expect(await models(stack)).toEqual(["second"]);
    expect([await ask(stack, "second"), await ask(stack, MODEL)]).toEqual([200, 404]);
    // The old one is shown for as long as it has work.
    expect((await stack.snapshot()).nodes[0]?.providers).toMatchObject([
      { id: "p2", status: "available", in_flight: { normal: 0 } },
      { id: "p1", status: "unavailable", in_flight: { normal: 3 } },
    ]);
    stack.provider.release();
    expect(await ends).toEqual(["200 whole", "200 whole", "200 whole"]);
    await stack.idle();
    expect((await stack.snapshot()).nodes[0]?.providers.map(({ id }) => id)).toEqual(["p2"]);
  });

  test("changes a capacity under running streams: no new one before enough are over", async () => {
    await using stack = await startStack({ capacity: 3 });
    const { ends } = await startStreams(stack, 3);
    await reload(stack, (file) => {
      for (const each of nodeOf(file).providers) each.capacity = 1;
    });
    await applied(stack, 2);
    expect((await stack.snapshot()).nodes[0]?.providers).toMatchObject([
      { capacity: { configured: 1, effective: 1 }, in_flight: { normal: 3 } },
    ]);
    const waiting = chat(stack);
    await stack.waiting(1);
    stack.provider.release();
    expect(await ends).toEqual(["200 whole", "200 whole", "200 whole"]);
    expect(brief(await waiting)).toBe("200 whole");
    await stack.idle();
  });

  test("gives what waits to a capacity that is raised, and ends what waits for a model that is gone", async () => {
    await using stack = await startStack({ capacity: 1 });
    const { ends } = await startStreams(stack, 1);
    const first = chat(stack);
    await stack.waiting(1);
    await reload(stack, (file) => {
      for (const each of nodeOf(file).providers) each.capacity = 2;
    });
    expect(brief(await first)).toBe("200 whole");

    const { ends: more } = await startStreams(stack, 1);
    const second = chat(stack);
    await stack.waiting(1);
    await reload(stack, (file) => {
      file.models = {};
    });
    expect(brief(await second)).toBe("404 whole");
    stack.provider.release();
    expect([await ends, await more]).toEqual([["200 whole"], ["200 whole"]]);
    await stack.idle();
  });

  test("with a wrong file leaves everything as it was, and the log says where it is wrong", async () => {
    await using stack = await startStack();
    const good = await readFile(stack.edgeFile, "utf8");
    await writeFile(stack.edgeFile, "edge:\n  name: edge-1\n  nmae: x\nnodes: [\n");
    await hangUp(stack);
    await writeFile(
      stack.edgeFile,
      'edge: { name: edge-1 }\nmodels:\n  m:\n    candidates:\n      - { node: nobody, provider: p, target: "t" }\n',
    );
    await hangUp(stack);
    const log = stack.edge.log();
    expect(log).toContain(`${stack.edgeFile}:5:17: models.m.candidates[0].node: no node is named`);
    expect(log).toMatch(/edge\.yaml:\d+:\d+: .*is not valid YAML/);
    expect(log.split("not reloaded, the configuration stays as it was")).toHaveLength(3);
    expect(brief(await chat(stack))).toBe("200 whole");
    expect(await models(stack)).toEqual([MODEL]);

    await writeFile(stack.edgeFile, good);
    await hangUp(stack);
    expect(stack.edge.log()).toContain('"revision":2');
    expect(brief(await chat(stack))).toBe("200 whole");
    await stack.idle();
  });

  test("changes the keys of callers; what runs goes on", async () => {
    await using stack = await startStack();
    const { ends } = await startStreams(stack, 1);
    const fresh = "a-new-key-for-the-same-caller";
    await reload(stack, (file) => {
      file.api_keys = [{ name: "tester", sha256: createHash("sha256").update(fresh).digest("hex") }];
    });
    expect(await ask(stack, MODEL)).toBe(401);
    expect(await ask({ http: stack.http, apiKey: fresh }, MODEL)).toBe(200);
    stack.provider.release();
    expect(await ends).toEqual(["200 whole"]);
    await stack.idle();
    expect(stack.edge.log()).not.toContain(fresh);
  });

  test("names what needs a restart", async () => {
    await using stack = await startStack();
    await reload(stack, (file) => {
      file.edge.name = "edge-2";
      file.edge.heartbeat = { interval_sec: 1, wait_sec: 3 };
    });
    expect(stack.edge.log()).toContain("in force only after a restart: edge.name, edge.heartbeat");
    expect(brief(await chat(stack))).toBe("200 whole");
    await stack.idle();
  });

  test("that takes a node away lets its work end; the Node then hears that it is not known", async () => {
    await using stack = await startStack({ edge: { drain_timeout_sec: 20 } });
    const { ends } = await startStreams(stack, 2);
    await reload(stack, (file) => {
      file.nodes = [];
      file.models = {};
    });
    await stack.node.logged("the Edge is draining");
    expect(await ask(stack, MODEL)).toBe(404);
    stack.provider.release();
    expect(await ends).toEqual(["200 whole", "200 whole"]);
    expect((await stack.node.exit).code).toBe(3);
    expect(stack.node.log()).toContain("no node has this token");
    expect(await stack.snapshot()).toMatchObject({ nodes: [], streams: 0 });
  });

  test("with a provider that its Node may not use: it is unavailable and says why, the rest serves", async () => {
    await using stack = await startStack();
    await reload(stack, (file) => {
      nodeOf(file).providers.push({ id: "far", adapter: "openai-compat", endpoint: "http://10.0.0.1:8000" });
      file.models["far"] = { candidates: [{ node: "node-1", provider: "far", target: "iop-demo" }] };
    });
    await stack.edge.logged("config_refused");
    expect((await stack.snapshot()).nodes[0]?.providers).toMatchObject([
      { id: "p1", status: "available" },
      { id: "far", status: "unavailable", reason: expect.stringContaining("allow.endpoints") },
    ]);
    expect(await ask(stack, "far")).toBe(503);
    expect(brief(await chat(stack))).toBe("200 whole");
    await stack.idle();
  });
});

test("SIGHUP to a Node ends nothing", async () => {
  await using stack = await startStack();
  const { ends } = await startStreams(stack, 1);
  stack.node.signal("SIGHUP");
  await stack.node.logged("SIGHUP ignored");
  stack.provider.release();
  expect(await ends).toEqual(["200 whole"]);
  await stack.idle();
});
