import {
  EdgeError,
  type EdgeErrorCode,
  type EdgeService,
  type EdgeSnapshot,
  type ModelInfo,
  type ProviderTunnel,
  type QueueWait,
  type RunDispatch,
  type TunnelFrame,
  type TunnelSubmission,
} from "@iop/edge-core";

/** A tunnel that the test plays the provider of. */
export class FakeTunnel implements ProviderTunnel {
  readonly dispatch: RunDispatch = {
    nodeId: "node-1",
    providerId: "p",
    target: "served",
    usageAttribution: "provider",
  };
  queue: QueueWait = { position: 0, waitedMs: 0 };
  /** Reasons, in order. */
  readonly cancelled: string[] = [];
  /** Frames that the consumer took. */
  taken = 0;
  over = false;
  /** Resolves with the first frame. */
  readonly begun: Promise<void>;
  readonly #begin: () => void;
  readonly #frames: TunnelFrame[] = [];
  #wake: (() => void) | undefined;

  constructor() {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.begun = promise;
    this.#begin = resolve;
  }

  send(...frames: readonly TunnelFrame[]): void {
    this.#frames.push(...frames);
    this.#begin();
    this.#wake?.();
  }

  start(headers: ReadonlyArray<readonly [string, string]> = [], status = 200): void {
    this.send({ kind: "start", status, headers });
  }

  body(text: string | Uint8Array): void {
    this.send({ kind: "body", body: typeof text === "string" ? Buffer.from(text) : text });
  }

  end(): void {
    this.send({ kind: "end" });
  }

  fail(code: string, message = `it failed: ${code}`): void {
    this.send({ kind: "error", code, message });
  }

  cancel(reason: string): void {
    if (this.over || this.cancelled.length > 0) return;
    this.cancelled.push(reason);
    this.#frames.length = 0;
    this.fail("cancelled");
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<TunnelFrame, void> {
    try {
      for (;;) {
        const frame = this.#frames.shift();
        if (frame === undefined) {
          const { promise, resolve } = Promise.withResolvers<void>();
          this.#wake = resolve;
          await promise;
          continue;
        }
        this.taken += 1;
        if (frame.kind === "end" || frame.kind === "error") this.over = true;
        yield frame;
        if (this.over) return;
      }
    } finally {
      if (!this.over) this.cancelled.push("returned");
      this.over = true;
    }
  }
}

export interface Submitted {
  readonly submission: TunnelSubmission;
  readonly tunnel: FakeTunnel;
  /** The body for the served target. */
  readonly body: Buffer;
}

/** An Edge whose dispatching the test decides. */
export class FakeEdge implements EdgeService {
  readonly submitted: Submitted[] = [];
  /** How the requests wait. */
  queue: QueueWait = { position: 0, waitedMs: 0 };
  /** `open`: at once; `wait`: until the caller withdraws; else the failure. */
  mode: "open" | "wait" | EdgeErrorCode | Error = "open";
  modelKeys: readonly string[] = ["m", "org/other"];
  #waiters: Array<(submitted: Submitted) => void> = [];

  async submitProviderTunnel(submission: TunnelSubmission): Promise<ProviderTunnel> {
    if (this.mode instanceof Error) throw this.mode;
    if (this.mode !== "open" && this.mode !== "wait")
      throw new EdgeError(this.mode, `edge says ${this.mode}`);
    if (!this.modelKeys.includes(submission.model)) throw new EdgeError("unknown_model", "no such key");
    const tunnel = new FakeTunnel();
    tunnel.queue = this.queue;
    const submitted = { submission, tunnel, body: Buffer.concat(submission.buildBody("served")) };
    this.submitted.push(submitted);
    this.#waiters.shift()?.(submitted);
    if (this.mode === "wait") {
      const { promise, reject } = Promise.withResolvers<never>();
      submission.signal?.addEventListener("abort", () => reject(new EdgeError("cancelled", "withdrawn")));
      await promise;
    }
    const withdraw = (): void => tunnel.cancel("withdrawn");
    submission.signal?.addEventListener("abort", withdraw);
    await tunnel.begun;
    submission.signal?.removeEventListener("abort", withdraw);
    return tunnel;
  }

  /** The next submission to come. */
  next(): Promise<Submitted> {
    return new Promise((resolve) => {
      this.#waiters.push(resolve);
    });
  }

  models(): readonly ModelInfo[] {
    return this.modelKeys.map((key) => ({ key, candidates: 1, live: 1 }));
  }

  snapshot(): EdgeSnapshot {
    return {
      edge: { name: "edge", mode: "legacy", uptime_sec: 0, config_revision: 1 },
      nodes: [],
      models: [],
      streams: 0,
      totals: { relayed_bytes: { request: 0, response: 0 }, unknown_messages: 0, late_messages: 0 },
    };
  }
}
