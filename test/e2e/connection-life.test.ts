import { connect } from "node:net";
import { describe, expect, test } from "vitest";

import { brief, chat, header, startStreams } from "../support/chat.ts";
import { MODEL, type Stack, startStack } from "../support/stack.ts";

async function serves(stack: Stack): Promise<void> {
  expect(brief(await chat(stack))).toBe("200 whole");
}

describe("a Node's attempts", () => {
  test("go on, where they are unlimited, until its Edge is there", async () => {
    await using stack = await startStack({ start: "nothing" });
    const node = await stack.spawnNode({
      nodeOptions: { reconnect: { max_attempts: 0, interval_sec: 0.1 } },
    });
    // More than the default of finite attempts.
    await node.logged("will dial again", 11);
    expect(node.log()).toContain("ECONNREFUSED");
    await stack.startEdge();
    await node.becomesReady();
    await serves(stack);
    await stack.idle();
    expect((await node.stop()).code).toBe(0);
  });

  test("end with exit code 4, where they are finite, also after it has served", async () => {
    await using stack = await startStack({
      nodeOptions: { reconnect: { max_attempts: 3, interval_sec: 0.1 } },
    });
    await serves(stack);
    stack.edge.signal("SIGKILL");
    expect(await stack.node.exit).toMatchObject({ code: 4 });
    const log = stack.node.log();
    expect(log.split("will dial again")).toHaveLength(3);
    expect(log).toContain("3 attempts failed");
  });

  test("end at once with exit code 3 where the Edge does not know the token, which nobody says", async () => {
    await using stack = await startStack({ start: "edge" });
    const token = "an-unknown-token-of-some-length";
    const node = await stack.spawnNode({ token });
    expect(await node.exit).toMatchObject({ code: 3 });
    await stack.edge.logged("node refused");
    expect(stack.edge.log()).toContain('"code":"unknown_token"');
    expect(node.log()).toContain("no node has this token");
    expect(node.log()).not.toContain("will dial again");
    expect(node.log() + stack.edge.log()).not.toContain(token);
    expect((await stack.snapshot()).nodes).toMatchObject([{ name: "node-1", connected: false }]);
  });

  test("end with exit code 0 when it is told to stop while it waits", async () => {
    await using stack = await startStack({ start: "nothing" });
    const node = await stack.spawnNode({ nodeOptions: { reconnect: { max_attempts: 3, interval_sec: 60 } } });
    await node.logged("will dial again");
    expect((await node.stop()).code).toBe(0);
  });
});

describe("a second process of a node", () => {
  test("is refused while the first lives, and serves once that has gone", async () => {
    await using stack = await startStack();
    const first = stack.node;
    const second = await stack.spawnNode();
    await second.logged("will dial again");
    expect(second.log()).toContain("is connected already, from another process");
    await serves(stack);
    expect(first.log()).not.toContain("disconnected");
    expect((await first.stop()).code).toBe(0);
    await second.becomesReady();
    await serves(stack);
    await stack.idle();
    // Ready, refused at least once, gone, ready: each is an event, and said once.
    const said = stack.edge.log();
    expect(said.split("node connected")).toHaveLength(3);
    expect(said.split("node disconnected")).toHaveLength(2);
    expect(said.split("node refused").length).toBe(second.log().split("will dial again").length);
  });
});

describe("SIGTERM", () => {
  test("of a Node: the stream that runs ends whole, nothing new is sent to it, exit code 0", async () => {
    await using stack = await startStack({ nodeOptions: { drain_timeout_sec: 20 } });
    const { ends } = await startStreams(stack, 1);
    stack.node.signal("SIGTERM");
    await stack.until(({ nodes: [node] }) => node?.providers[0]?.status === "unavailable");
    const refused = await chat(stack);
    expect(brief(refused)).toBe("503 whole");
    stack.provider.release();
    expect(await ends).toEqual(["200 whole"]);
    expect(await stack.node.exit).toMatchObject({ code: 0 });
    await stack.connected(false);
    await stack.idle();
    expect(stack.provider.state()).toMatchObject({ aborted: 0, cut: 0 });
  });

  test("of a Node, twice: it ends at once, its stream is cut, the place is free", async () => {
    await using stack = await startStack({ nodeOptions: { drain_timeout_sec: 60 } });
    const { ends } = await startStreams(stack, 1);
    stack.node.signal("SIGTERM");
    await stack.node.logged("shutting down");
    const asked = performance.now();
    stack.node.signal("SIGTERM");
    expect(await stack.node.exit).toMatchObject({ code: 143 });
    expect(performance.now() - asked).toBeLessThan(2_000);
    expect(await ends).toEqual(["200 cut"]);
    await stack.connected(false);
    await stack.idle();
    await stack.startNode();
    await serves(stack);
  });

  test("of an Edge: the stream that runs ends whole, new requests get a 503, the Node comes back to its successor", async () => {
    await using stack = await startStack({ edge: { drain_timeout_sec: 20 } });
    const { ends } = await startStreams(stack, 1);
    // One whose connection is there, but whose request is not whole yet.
    const { hostname, port } = new URL(stack.http);
    const body = JSON.stringify({ model: MODEL, messages: [{ role: "user", content: "late" }] });
    const late = connect({ host: hostname, port: Number(port) });
    const gone = new Promise<void>((resolve) => {
      late.once("close", () => resolve());
    });
    let answer = "";
    late.on("data", (text: Buffer) => (answer += text.toString("latin1")));
    late.write(
      `POST /v1/chat/completions HTTP/1.1\r\nhost: ${hostname}:${port}\r\ncontent-type: application/json\r\n` +
        `authorization: Bearer ${stack.apiKey}\r\ncontent-length: ${Buffer.byteLength(body)}\r\n` +
        "expect: 100-continue\r\n\r\n",
    );
    await expect.poll(() => answer).toContain("100 Continue");

    stack.edge.signal("SIGTERM");
    await stack.node.logged("the Edge is draining");
    late.write(body);
    await expect.poll(() => answer).toContain('"draining"');
    expect(answer).toMatch(/HTTP\/1\.1 503 /);
    expect(answer.toLowerCase()).toContain("\r\nretry-after: ");
    // It was told that it may stay before anybody knew; it may not.
    await gone;
    // Whoever comes anew is told as much.
    const fresh = await chat(stack);
    expect(brief(fresh)).toBe("503 whole");
    expect(header(fresh, "retry-after")).toBeDefined();

    stack.provider.release();
    expect(await ends).toEqual(["200 whole"]);
    expect(await stack.edge.exit).toMatchObject({ code: 0 });
    expect(stack.provider.state()).toMatchObject({ active_requests: 0, aborted: 0, cut: 0 });

    await stack.startEdge();
    await stack.connected();
    await serves(stack);
    await stack.idle();
    expect(stack.node.log().split('"msg":"disconnected"')).toHaveLength(2);
  });

  test("of an Edge, twice: it ends at once, clients are cut, the provider's work stops", async () => {
    await using stack = await startStack({ edge: { drain_timeout_sec: 60 } });
    const { ends } = await startStreams(stack, 3);
    stack.edge.signal("SIGTERM");
    await stack.node.logged("the Edge is draining");
    stack.edge.signal("SIGTERM");
    expect(await stack.edge.exit).toMatchObject({ code: 143 });
    expect(await ends).toEqual(["200 cut", "200 cut", "200 cut"]);
    await stack.provider.when(({ active_requests }) => active_requests === 0, AbortSignal.timeout(5_000));
    expect(stack.provider.state().aborted).toBe(3);
  });
});

describe("a model server that is down", () => {
  test("does not keep its Node from being ready; it is probed, and serves once it is there", async () => {
    await using stack = await startStack({ start: "edge" });
    const port = Number(new URL(stack.providerUrl).port);
    await stack.provider.close();
    await stack.startNode();
    const down = await stack.snapshot();
    expect(down.nodes).toMatchObject([{ connected: true, providers: [{ status: "unavailable" }] }]);
    expect(brief(await chat(stack))).toBe("503 whole");
    expect(stack.node.log()).toContain("provider offline");

    await stack.provider.listen({ port });
    await stack.until(({ nodes: [node] }) => node?.providers[0]?.status === "available", 8_000);
    await serves(stack);
    expect(stack.node.log()).not.toContain("disconnected");
    await stack.idle();
  });
});
