import type { Connection, Listener, Transport } from "./transport.ts";
import { WireError } from "./wire-error.ts";

/** One requirement, as a test: `run` rejects where it is not met. Use any test runner. */
export interface TransportCase {
  readonly name: string;
  readonly run: () => Promise<void>;
}

/** Makes a fresh transport and takes it apart again. Called once for each case. */
export interface TransportFixture {
  /** The transport to listen on. */
  readonly listening: Transport;
  /** How to dial what listens at `address`. */
  dialling(address: string): Transport;
}

interface Recorder {
  readonly connection: Connection;
  readonly bytes: () => Uint8Array;
  readonly closed: Promise<void>;
  readonly closes: () => number;
  readonly drains: () => number;
  /** Resolves once `count` bytes have come. */
  received(count: number): Promise<void>;
}

const LIMIT_MS = 10_000;

/**
 * What every `Transport` must satisfy. `setup` is called for each case.
 *
 * @example for (const { name, run } of transportCases(() => myFixture())) test(name, run);
 */
export function transportCases(setup: () => TransportFixture): readonly TransportCase[] {
  const define = (name: string, body: (pair: Pair) => Promise<void>): TransportCase => ({
    name,
    run: async () => {
      const pair = await connect(setup());
      try {
        await within(body(pair), name);
      } finally {
        pair.near.connection.destroy();
        pair.far.connection.destroy();
        await pair.listener.close();
      }
    },
  });
  return [
    define("delivers both ways, in order, whatever the chunks", async ({ near, far }) => {
      const sent = pattern(300_000);
      near.connection.write([sent.subarray(0, 1), sent.subarray(1, 70_000)]);
      near.connection.write([sent.subarray(70_000)]);
      far.connection.write([sent.subarray(0, 5000)]);
      await Promise.all([far.received(sent.length), near.received(5000)]);
      check(equal(far.bytes(), sent), "the listening end got other bytes");
      check(equal(near.bytes(), sent.subarray(0, 5000)), "the dialling end got other bytes");
    }),
    define("delivers nothing in the turn in which it was written", async ({ near, far }) => {
      near.connection.write([pattern(10)]);
      check(far.bytes().length === 0, "delivered within write");
      await far.received(10);
    }),
    define("counts what is queued and says when it has drained", async ({ near, far }) => {
      const big = pattern(8 * 1024 * 1024);
      near.connection.write([big]);
      check(near.connection.queuedBytes > 0, "nothing queued after writing 8 MiB");
      await far.received(big.length);
      await until(() => near.drains() > 0);
      check(near.connection.queuedBytes === 0, "queued after drained");
    }),
    define("end sends what is queued, then both ends close once", async ({ near, far }) => {
      const sent = pattern(200_000);
      near.connection.write([sent]);
      near.connection.end(LIMIT_MS);
      near.connection.write([pattern(1)]);
      await Promise.all([far.closed, near.closed]);
      check(equal(far.bytes(), sent), "what was queued before end was lost, or more came");
      check(near.closes() === 1 && far.closes() === 1, "closed more than once");
    }),
    define("end is over after its linger, whatever the peer does", async ({ near }) => {
      near.connection.write([pattern(1000)]);
      near.connection.end(50);
      await near.closed;
    }),
    define("destroy closes both ends, and is idempotent", async ({ near, far }) => {
      far.connection.destroy();
      far.connection.destroy();
      await Promise.all([far.closed, near.closed]);
      near.connection.write([pattern(10)]);
      near.connection.end(10);
      near.connection.destroy();
      check(near.closes() === 1 && far.closes() === 1, "closed more than once");
    }),
    {
      name: "dialling where nobody listens is dial_failed",
      run: async () => {
        const fixture = setup();
        const listener = await fixture.listening.listen({ accept: (connection) => connection.destroy() });
        await listener.close();
        const failure: unknown = await within(
          fixture
            .dialling(listener.address)
            .dial({ signal: new AbortController().signal })
            .then(
              () => undefined,
              (error: unknown) => error,
            ),
          "dial",
        );
        check(WireError.is(failure) && failure.code === "dial_failed", "not dial_failed");
      },
    },
    {
      name: "an aborted dial rejects with the signal's reason",
      run: async () => {
        const fixture = setup();
        const listener = await fixture.listening.listen({ accept: (connection) => connection.destroy() });
        const reason = new Error("stop");
        const failure: unknown = await fixture
          .dialling(listener.address)
          .dial({ signal: AbortSignal.abort(reason) })
          .then(
            () => undefined,
            (error: unknown) => error,
          );
        await listener.close();
        check(failure === reason, "rejected with something else");
      },
    },
    define("closing the listener leaves connections alone", async ({ near, far, listener }) => {
      await listener.close();
      await listener.close();
      near.connection.write([pattern(100)]);
      await far.received(100);
    }),
  ];
}

interface Pair {
  readonly near: Recorder;
  readonly far: Recorder;
  readonly listener: Listener;
}

async function connect(fixture: TransportFixture): Promise<Pair> {
  const { promise, resolve } = Promise.withResolvers<Recorder>();
  const listener = await fixture.listening.listen({ accept: (connection) => resolve(record(connection)) });
  const near = record(
    await fixture.dialling(listener.address).dial({ signal: new AbortController().signal }),
  );
  return { near, far: await promise, listener };
}

function record(connection: Connection): Recorder {
  const chunks: Uint8Array[] = [];
  let length = 0;
  let closes = 0;
  let drains = 0;
  const { promise: closed, resolve: close } = Promise.withResolvers<void>();
  connection.open({
    data: (chunk) => {
      chunks.push(chunk);
      length += chunk.length;
    },
    drained: () => {
      drains++;
    },
    closed: () => {
      closes++;
      close();
    },
  });
  return {
    connection,
    bytes: () => concat(chunks, length),
    closed,
    closes: () => closes,
    drains: () => drains,
    received: (count) => until(() => length >= count),
  };
}

async function until(condition: () => boolean): Promise<void> {
  const deadline = performance.now() + LIMIT_MS;
  while (!condition()) {
    check(performance.now() < deadline, "waited too long");
    await new Promise<void>((resolve) => {
      setImmediate(resolve);
    });
  }
}

async function within<T>(work: Promise<T>, name: string): Promise<T> {
  const { promise, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(new Error(`${name}: not over within ${LIMIT_MS} ms`)), LIMIT_MS);
  try {
    return await Promise.race([work, promise]);
  } finally {
    clearTimeout(timer);
  }
}

function check(condition: boolean, message: string): asserts condition {
  if (!condition) throw new Error(message);
}

function pattern(length: number): Uint8Array {
  return Uint8Array.from({ length }, (_, index) => (index * 31 + (index >> 8)) & 0xff);
}

function concat(chunks: readonly Uint8Array[], length: number): Uint8Array {
  const all = new Uint8Array(length);
  let at = 0;
  for (const chunk of chunks) {
    all.set(chunk, at);
    at += chunk.length;
  }
  return all;
}

function equal(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, index) => byte === b[index]);
}
