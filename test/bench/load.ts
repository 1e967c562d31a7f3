import { Agent } from "undici";
import type { Dispatcher } from "undici";

import { API_KEY, type Contender } from "./contenders.ts";

/** What one request brought. */
export interface Exchange {
  readonly firstByteMs: number;
  readonly totalMs: number;
  readonly bytes: number;
}

/** A client that costs little: undici's `dispatch`, no streams. */
export class Load implements AsyncDisposable {
  readonly #agent = new Agent({ connections: null, pipelining: 1, headersTimeout: 0, bodyTimeout: 0 });

  /** One chat request; resolves at its end. @throws on any failure or status but 200. */
  chat(
    contender: Contender,
    body: Readonly<Record<string, unknown>>,
    options: {
      /** The response's head is here; an idle stream has no more than that. */
      readonly onHead?: () => void;
      readonly onData?: () => void;
      readonly signal?: AbortSignal;
    } = {},
  ): Promise<Exchange> {
    const { promise, resolve, reject } = Promise.withResolvers<Exchange>();
    const started = performance.now();
    let firstByteMs = 0;
    let bytes = 0;
    const handler: Dispatcher.DispatchHandler = {
      onRequestStart(controller) {
        options.signal?.addEventListener("abort", () => controller.abort(new Error("enough")));
      },
      onResponseStart(_, statusCode) {
        if (statusCode !== 200) reject(new Error(`${contender.name}: status ${statusCode}`));
        options.onHead?.();
      },
      onResponseData(_, chunk) {
        if (bytes === 0) firstByteMs = performance.now() - started;
        bytes += chunk.length;
        options.onData?.();
      },
      onResponseEnd() {
        resolve({ firstByteMs, totalMs: performance.now() - started, bytes });
      },
      onResponseError(_, error) {
        reject(error);
      },
    };
    this.#agent.dispatch(
      {
        origin: contender.url,
        path: "/v1/chat/completions",
        method: "POST",
        headers: ["content-type", "application/json", "authorization", `Bearer ${API_KEY}`],
        body: JSON.stringify({
          model: contender.model,
          messages: [{ role: "user", content: "bench" }],
          ...body,
        }),
      },
      handler,
    );
    return promise;
  }

  /** `count` requests, `concurrency` at a time. */
  async run(
    contender: Contender,
    body: Readonly<Record<string, unknown>>,
    count: number,
    concurrency: number,
  ): Promise<Exchange[]> {
    const done: Exchange[] = [];
    let started = 0;
    const worker = async (): Promise<void> => {
      while (started++ < count) done.push(await this.chat(contender, body));
    };
    await Promise.all(Array.from({ length: concurrency }, worker));
    return done;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#agent.destroy();
  }
}
