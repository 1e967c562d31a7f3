import type { Socket } from "node:net";
import { describe, expect, it } from "vitest";
import { answering, providerAt, readAll } from "./testing/loopback.ts";

const MIB = 1024 * 1024;

describe("backpressure", () => {
  it.each([
    ["a body of known length", `Content-Length: ${64 * MIB}\r\n\r\n`, (part: Buffer) => [part]],
    [
      "small chunks",
      "Transfer-Encoding: chunked\r\n\r\n",
      (part: Buffer) =>
        Array.from({ length: 1024 }, (_, i) => [
          Buffer.from("400\r\n"),
          part.subarray(i * 1024, (i + 1) * 1024),
          Buffer.from("\r\n"),
        ]).flat(),
    ],
  ])("keeps a server waiting that sends %s to nobody", async (_name, head, frame) => {
    const part = Buffer.alloc(MIB, 7);
    const framed = Buffer.concat(frame(part));
    let busy: Socket | undefined;
    const { origin } = await answering((socket) => {
      if (busy !== undefined) {
        socket.write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        return;
      }
      busy = socket;
      socket.write(`HTTP/1.1 200 OK\r\n${head}`);
      for (let i = 0; i < 64; i++) socket.write(framed);
      if (head.startsWith("T")) socket.write("0\r\n\r\n");
    });
    const provider = providerAt(origin);
    const { body } = await provider.tunnel();
    // Other exchanges take turns with the big one on both sides. Once it has not moved during many of them,
    // it waits for its reader.
    for (let still = 0, before = 0; still < 200; still++) {
      await readAll((await provider.tunnel()).body);
      const now = busy?.writableLength ?? 0;
      if (now !== before) still = 0;
      before = now;
    }
    // What is not with the server any more is in the kernel's buffers, and 64 KiB or so here.
    expect(busy?.writableLength).toBeGreaterThan(40 * MIB);
    let total = 0;
    let longest = 0;
    for await (const chunk of body) {
      total += chunk.byteLength;
      longest = Math.max(longest, chunk.byteLength);
    }
    expect(total).toBe(64 * MIB);
    expect(longest).toBeLessThanOrEqual(64 * 1024);
  });
});
