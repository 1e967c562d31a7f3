import { once } from "node:events";
import { Socket } from "node:net";
import { describe, expect, it } from "vitest";
import { serve } from "./testing/served.ts";

const BODY = '{"model":"m"}';
const HEAD = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n";

describe("a client that leaves", () => {
  it("in the middle of its body, is never submitted", async () => {
    const { edge, raw, reported, server } = await serve();
    const request = once(server, "request");
    const client = raw();
    client.send(`${HEAD}content-length: 100\r\n\r\n{"mod`);
    await request;
    await client.destroy();
    expect(await reported(1)).toMatchObject([{ outcome: "client_closed", status: 0, model: undefined }]);
    expect(edge.submitted).toEqual([]);
  });

  it("while it waits for a provider, is withdrawn", async () => {
    const { edge, raw, reported } = await serve();
    edge.mode = "wait";
    const submitted = edge.next();
    const client = raw();
    client.post(BODY);
    const { submission } = await submitted;
    expect(submission.signal?.aborted).toBe(false);
    await client.destroy();
    expect(await reported(1)).toMatchObject([{ outcome: "client_closed", status: 0, model: "m" }]);
    expect(submission.signal?.aborted).toBe(true);
  });

  it.each([
    ["before the response starts", 0],
    ["after its head", 1],
    ["in the middle of it", 3],
  ])("%s, stops the work", async (_, frames) => {
    const { edge, raw, reported } = await serve();
    const submitted = edge.next();
    const client = raw();
    client.post(BODY);
    const { tunnel } = await submitted;
    if (frames > 0) {
      tunnel.start();
      await client.until("\r\n\r\n");
    }
    for (let i = 1; i < frames; i += 1) {
      tunnel.body(`<${i}>`);
      await client.until(`<${i}>`);
    }
    await client.destroy();
    expect(await reported(1)).toMatchObject([
      { outcome: "client_closed", status: frames > 0 ? 200 : 0, dispatch: { nodeId: "node-1" } },
    ]);
    expect(tunnel.cancelled).toEqual([frames > 0 ? "client_closed" : "withdrawn"]);
  });

  it("by half-closing, stops the work too", async () => {
    const { edge, raw, reported } = await serve();
    const submitted = edge.next();
    const client = raw();
    client.post(BODY);
    const { tunnel } = await submitted;
    client.socket.end();
    await reported(1);
    expect(tunnel.cancelled).toEqual(["withdrawn"]);
  });

  it("leaves no listener behind on a connection that goes on", async () => {
    const { ask, edge, server } = await serve();
    const sockets: Socket[] = [];
    server.on("connection", (socket: Socket) => sockets.push(socket));
    const counts: Array<Record<string, number>> = [];
    for (let i = 0; i < 20; i += 1) {
      const submitted = edge.next();
      const answering = ask({ body: BODY });
      const { tunnel } = await submitted;
      tunnel.start();
      tunnel.end();
      await answering;
      const [socket] = sockets;
      const names = socket?.eventNames() ?? [];
      counts.push(Object.fromEntries(names.map((name) => [String(name), socket?.listenerCount(name) ?? 0])));
    }
    expect(sockets).toHaveLength(1);
    expect(counts[19]).toEqual(counts[1]);
  });
});

describe("a client that reads slowly", () => {
  const PIECE = Buffer.alloc(16_384, "x");

  it("holds up the tunnel and not the memory, and gets everything when it reads on", async () => {
    const { edge, raw, reported, server } = await serve();
    const connected = once(server, "connection");
    const submitted = edge.next();
    const client = raw();
    client.socket.pause();
    client.post(BODY);
    const { tunnel } = await submitted;
    const socket: unknown = (await connected)[0];
    if (!(socket instanceof Socket)) throw new Error("no socket");
    const pieces = 2_000;
    tunnel.start([["content-length", String(pieces * PIECE.length)]]);
    for (let i = 0; i < pieces; i += 1) tunnel.body(PIECE);
    tunnel.end();
    await stuck(() => tunnel.taken);
    expect(tunnel.taken).toBeLessThan(pieces);
    expect(socket.writableLength).toBeLessThan(160_000);
    client.socket.resume();
    const [info] = await reported(1);
    expect(info).toMatchObject({ outcome: "completed" });
    await client.until("\r\n\r\n");
    const total = client.text.indexOf("\r\n\r\n") + 4 + pieces * PIECE.length;
    while (client.text.length < total) await once(client.socket, "data");
    expect(client.text.length).toBe(total);
  });

  it.each([
    ["in the middle", false],
    ["with all of it handed over", true],
  ])("is cut off when it stops %s", async (_, ends) => {
    const { edge, raw, reported } = await serve({ slowConsumerMs: 100 });
    const submitted = edge.next();
    const client = raw();
    client.socket.pause();
    client.post(BODY);
    const { tunnel } = await submitted;
    tunnel.start();
    // More than the buffers of two sockets, in one piece where the end is to come right behind it.
    if (ends) tunnel.body(Buffer.alloc(32_768_000, "x"));
    else for (let i = 0; i < 2_000; i += 1) tunnel.body(PIECE);
    if (ends) tunnel.end();
    expect(await reported(1)).toMatchObject([{ outcome: "slow_consumer", status: 200 }]);
    expect(tunnel.cancelled).toEqual(["slow_consumer"]);
  });

  it("is cut off when it does not take what came before a break", async () => {
    const { edge, raw, reported, server } = await serve({ slowConsumerMs: 100 });
    const connected = once(server, "connection");
    const submitted = edge.next();
    const client = raw();
    client.socket.pause();
    client.post(BODY);
    const { tunnel } = await submitted;
    const socket: unknown = (await connected)[0];
    if (!(socket instanceof Socket)) throw new Error("no socket");
    tunnel.start();
    // Fills the buffers of both sockets, until a little waits in ours: less than would hold the tunnel up.
    do {
      tunnel.body(Buffer.alloc(1_024, "x"));
      await stuck(() => tunnel.taken);
    } while (socket.writableLength === 0);
    tunnel.fail("node_lost");
    expect(await reported(1)).toMatchObject([{ outcome: "cut", code: "node_lost" }]);
    expect(socket.destroyed).toBe(true);
  });
});

/** Waits until `count` has not moved for some turns of the event loop. */
async function stuck(count: () => number): Promise<void> {
  for (let before = -1, same = 0; same < 50;) {
    await new Promise((resolve) => {
      setImmediate(resolve);
    });
    same = count() === before ? same + 1 : 0;
    before = count();
  }
}
