import type { Socket } from "node:net";
import { connect, createServer } from "node:net";

/** A TCP proxy on loopback that plays a bad network. Faults apply to all connections, from the next chunk on. */
export interface FaultProxy extends AsyncDisposable {
  readonly port: number;
  /** Connections that are open. */
  readonly connections: number;
  /** Bytes passed on, both ways. */
  readonly bytes: number;
  /** Passes at most this many bytes a second each way, like a link with that rate and a short queue; undefined: no limit. */
  rate(bytesPerSecond: number | undefined): void;
  /** Passes nothing on, no end of a connection either; nobody is told. */
  freeze(): void;
  /**
   * Lets whoever has dialled hear nothing more on the connections that are open, ends included, and the other
   * side go on hearing it. Nobody is told; new connections are not affected.
   */
  deafen(): void;
  /** Passes on again what came meanwhile, ends included. */
  thaw(): void;
  /** Cuts what passes into pieces of 1 to `bytes`; undefined: as it comes. */
  slice(bytes: number | undefined): void;
  /** Resets all connections. */
  reset(): void;
}

/** How much the link itself holds, in bytes: what a router's queue and the kernels' buffers would. */
const LINK_QUEUE_BYTES = 64 * 1024;
/** Pacing step, in milliseconds. */
const TICK_MS = 5;

/** Listens on a free port and connects each connection on to `target` on loopback. */
export async function startFaultProxy(target: number): Promise<FaultProxy> {
  const pairs = new Set<Pump>();
  /** What is to be done at the thaw. */
  const held: Array<() => void> = [];
  let bytesPerSecond: number | undefined;
  let frozen = false;
  let pieces: number | undefined;
  let bytes = 0;

  const settings = {
    rate: () => bytesPerSecond,
    frozen: () => frozen,
    pieces: () => pieces,
    count: (passed: number) => {
      bytes += passed;
    },
  };

  const server = createServer({ noDelay: true }, (near) => {
    const far = connect({ host: "127.0.0.1", port: target, noDelay: true });
    const isHeld = (): boolean => frozen || down.deaf;
    const up = new Pump(near, far, settings, false, isHeld);
    const down: Pump = new Pump(far, near, settings, true, isHeld);
    pairs.add(up).add(down);
    const closed = (): void => {
      near.destroy();
      far.destroy();
      up.stop();
      down.stop();
      pairs.delete(up);
      pairs.delete(down);
    };
    for (const socket of [near, far]) {
      socket.on("error", () => {});
      socket.on("close", () => {
        if (isHeld()) held.push(closed);
        else closed();
      });
    }
  });
  await new Promise<void>((resolve) => {
    server.listen({ host: "127.0.0.1", port: 0 }, resolve);
  });
  const address = server.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;

  return {
    port,
    get connections() {
      return pairs.size / 2;
    },
    get bytes() {
      return bytes;
    },
    rate(limit) {
      bytesPerSecond = limit;
      for (const pump of pairs) pump.push();
    },
    freeze() {
      frozen = true;
    },
    deafen() {
      for (const pump of pairs) pump.deaf = pump.isDown;
    },
    thaw() {
      frozen = false;
      for (const pump of pairs) pump.deaf = false;
      for (const pump of pairs) pump.push();
      for (const end of held.splice(0)) end();
    },
    slice(limit) {
      pieces = limit;
    },
    reset() {
      for (const pump of pairs) pump.reset();
    },
    async [Symbol.asyncDispose]() {
      frozen = false;
      for (const end of held.splice(0)) end();
      for (const pump of pairs) pump.reset();
      await new Promise<void>((resolve) => {
        server.close(() => resolve());
      });
    },
  };
}

interface Settings {
  rate(): number | undefined;
  frozen(): boolean;
  pieces(): number | undefined;
  count(bytes: number): void;
}

/** One direction of one connection. */
class Pump {
  /** Towards whoever has dialled. */
  readonly isDown: boolean;
  /** Passes nothing on. */
  deaf = false;
  readonly #from: Socket;
  readonly #to: Socket;
  readonly #settings: Settings;
  readonly #timer: NodeJS.Timeout;
  #queue: Buffer[] = [];
  #queued = 0;
  #allowance = 0;

  constructor(from: Socket, to: Socket, settings: Settings, isDown: boolean, isHeld: () => boolean) {
    this.isDown = isDown;
    this.#from = from;
    this.#to = to;
    this.#settings = settings;
    this.#timer = setInterval(() => this.#tick(), TICK_MS);
    from.on("data", (chunk: Buffer) => {
      this.#queue.push(chunk);
      this.#queued += chunk.length;
      if (this.#queued >= LINK_QUEUE_BYTES) from.pause();
      this.push();
    });
    from.on("end", () => {
      if (this.#queued === 0 && !isHeld()) to.end();
    });
  }

  push(): void {
    if (this.#settings.rate() === undefined) this.#pass(Number.POSITIVE_INFINITY);
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  reset(): void {
    this.#from.resetAndDestroy();
  }

  #tick(): void {
    const rate = this.#settings.rate();
    if (rate === undefined) return;
    this.#allowance = Math.min(this.#allowance + (rate * TICK_MS) / 1000, (rate * 4 * TICK_MS) / 1000);
    this.#allowance -= this.#pass(this.#allowance);
  }

  #pass(limit: number): number {
    if (this.#settings.frozen() || this.deaf || this.#to.destroyed) return 0;
    let passed = 0;
    for (let chunk = this.#queue[0]; chunk !== undefined && passed < limit; chunk = this.#queue[0]) {
      const most = Math.min(
        chunk.length,
        limit - passed,
        this.#settings.pieces() ?? Number.POSITIVE_INFINITY,
      );
      const length = Math.max(1, Math.floor(most));
      if (length === chunk.length) this.#queue.shift();
      else this.#queue[0] = chunk.subarray(length);
      this.#to.write(chunk.subarray(0, length));
      passed += length;
    }
    this.#queued -= passed;
    this.#settings.count(passed);
    if (this.#queued < LINK_QUEUE_BYTES && this.#from.isPaused()) this.#from.resume();
    if (this.#queued === 0 && this.#from.readableEnded) this.#to.end();
    return passed;
  }
}
