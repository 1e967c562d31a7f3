import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { RuntimeError } from "@iop/agent-runtime";
import { ResponseBody } from "./response-body.ts";
import { codeOf, readAll } from "./testing/loopback.ts";

function bodyOf(): { body: ResponseBody; resumed: () => number; abandoned: () => number } {
  let resumed = 0;
  let abandoned = 0;
  const body = new ResponseBody({
    resume: () => void resumed++,
    abandon: async () => {
      abandoned++;
      body.end(new RuntimeError("cancelled", "cancelled"));
    },
  });
  return { body, resumed: () => resumed, abandoned: () => abandoned };
}

describe("ResponseBody", () => {
  it("passes the bytes in order, however pushes and pulls alternate, and bounds what it holds", async () => {
    const sizes = fc.array(fc.oneof(fc.integer({ min: 1, max: 300 }), fc.integer({ min: 1, max: 40_000 })), {
      maxLength: 60,
    });
    await fc.assert(
      fc.asyncProperty(sizes, fc.infiniteStream(fc.boolean()), async (lengths, coins) => {
        const { body } = bodyOf();
        const sent: Uint8Array[] = [];
        const got: Uint8Array[] = [];
        let open = true;
        let queued = 0;
        for (const [index, length] of lengths.entries()) {
          const chunk = new Uint8Array(length).fill(index % 251);
          // A client that was told to stop still has the rest of one read to give.
          if (open || queued < 128 * 1024) {
            sent.push(chunk);
            queued += length;
            open = body.push(chunk);
            if (queued < 64 * 1024) expect(open || queued >= 32 * 1024).toBe(true);
            if (queued >= 64 * 1024) expect(open).toBe(false);
          }
          while (queued > 0 && coins.next().value === true) {
            const step = await body.next();
            if (step.done === true) throw new Error("ended early");
            got.push(step.value);
            queued -= step.value.byteLength;
          }
        }
        body.end();
        got.push(await readAll(body));
        expect(Buffer.concat(got).equals(Buffer.concat(sent))).toBe(true);
      }),
      { numRuns: 200 },
    );
  });

  it("asks for more once, when half has been read", async () => {
    const { body, resumed } = bodyOf();
    const chunk = new Uint8Array(16 * 1024);
    expect([body.push(chunk), body.push(chunk), body.push(chunk), body.push(chunk)]).toEqual([
      true,
      true,
      true,
      false,
    ]);
    await body.next();
    await body.next();
    expect(resumed()).toBe(0);
    await body.next();
    await body.next();
    expect(resumed()).toBe(1);
  });

  it("does not hold the buffer of a read for a few bytes that wait", async () => {
    const { body } = bodyOf();
    const read = new Uint8Array(64 * 1024).fill(7);
    body.push(read.subarray(10, 210));
    body.push(read.subarray(216, 416));
    const step = await body.next();
    expect(step.value?.byteLength).toBe(400);
    expect(step.value?.buffer.byteLength).toBeLessThanOrEqual(16 * 1024);
    expect(step.value?.every((byte) => byte === 7)).toBe(true);
  });

  it("gives a chunk that is waited for as it is", async () => {
    const { body } = bodyOf();
    const next = body.next();
    const chunk = new Uint8Array(5);
    body.push(chunk);
    expect((await next).value).toBe(chunk);
  });

  it("throws once, after what had arrived before", async () => {
    const { body } = bodyOf();
    body.push(new Uint8Array(3));
    body.end(new RuntimeError("provider_stream_cut", "cut"));
    body.end();
    expect((await body.next()).value).toHaveLength(3);
    expect(await codeOf(body.next())).toBe("provider_stream_cut");
    expect(await body.next()).toEqual({ done: true, value: undefined });
  });

  it("throws at whoever waits, once", async () => {
    const { body } = bodyOf();
    const waiting = body.next();
    expect(await codeOf(body.next())).toBe("internal");
    body.end(new RuntimeError("idle_timeout", "silent"));
    expect(await codeOf(waiting)).toBe("idle_timeout");
    expect((await body.next()).done).toBe(true);
  });

  it("abandons the exchange when its reader returns early, and only then", async () => {
    const early = bodyOf();
    early.body.push(new Uint8Array(3));
    await early.body.return();
    expect(early.abandoned()).toBe(1);
    expect((await early.body.next()).done).toBe(true);

    const late = bodyOf();
    late.body.push(new Uint8Array(3));
    late.body.end(new RuntimeError("provider_stream_cut", "cut"));
    await late.body.return();
    expect(late.abandoned()).toBe(0);
    expect((await late.body.next()).done).toBe(true);
  });
});
