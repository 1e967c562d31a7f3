import type { OutgoingHttpHeaders, ServerResponse } from "node:http";
import type { EdgeEvents, NodeEvent, RunOutcomeEvent } from "@iop/edge-core";
import { nodeMessage, runMessage } from "./admin-messages.ts";
import { EventSubscriber } from "./event-subscriber.ts";
import { HttpSurfaceError } from "./http-surface-error.ts";

/** https://html.spec.whatwg.org/multipage/server-sent-events.html: a comment, for proxies that close what is silent. */
const KEEP_ALIVE = ": keep-alive\n\n";
/** When a browser's EventSource comes back after the end of a stream, in milliseconds. */
const RETRY_MS = 2_000;

export interface EventStreamsOptions {
  readonly events: EdgeEvents;
  /** Above it a subscriber is refused. */
  readonly maxSubscribers: number;
  /** Unsent bytes that are kept for one subscriber. */
  readonly bufferedBytes: number;
  /** Between two comments, in milliseconds. */
  readonly keepAliveMs: number;
  /** How long a lagging subscriber may take to read what is kept, in milliseconds. */
  readonly patienceMs: number;
}

/** Fans an Edge's events out to HTTP responses, as server-sent events. */
export class EventStreams {
  readonly #options: EventStreamsOptions;
  readonly #subscribers = new Set<EventSubscriber>();
  readonly #onNode = (event: NodeEvent): void => this.#send("node", () => nodeMessage(event));
  readonly #onRun = (event: RunOutcomeEvent): void => this.#send("run", () => runMessage(event));
  /** Of the latest event, whether anybody was there or not, so that a gap in the ids is what a reader missed. */
  #id = 0;
  #keepAlive: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(options: EventStreamsOptions) {
    this.#options = options;
    options.events.on("node", this.#onNode).on("run", this.#onRun);
  }

  /**
   * Answers with `headers`, then writes events to `res` until its client leaves.
   * @throws HttpSurfaceError `too_many_subscribers`, `draining`
   */
  open(res: ServerResponse, headers: OutgoingHttpHeaders): void {
    if (this.#closed) throw new HttpSurfaceError("draining", 503, "The Edge is shutting down.");
    if (this.#subscribers.size >= this.#options.maxSubscribers)
      throw new HttpSurfaceError(
        "too_many_subscribers",
        503,
        `${this.#subscribers.size} subscribers read the events already.`,
        { headers: { "retry-after": "5" } },
      );
    res.writeHead(200, headers);
    const subscriber = new EventSubscriber(res, this.#options, () => {
      this.#subscribers.delete(subscriber);
      if (this.#subscribers.size === 0) this.#stopKeepAlive();
    });
    this.#subscribers.add(subscriber);
    this.#keepAlive ??= setInterval(() => {
      for (const one of this.#subscribers) one.keepAlive(KEEP_ALIVE);
    }, this.#options.keepAliveMs).unref();
    subscriber.send(`retry: ${RETRY_MS}\n\n`);
  }

  /** Ends all of them, and takes no more. Idempotent. */
  close(): void {
    this.#closed = true;
    this.#options.events.off("node", this.#onNode).off("run", this.#onRun);
    this.#stopKeepAlive();
    for (const subscriber of this.#subscribers) subscriber.end();
  }

  #send(name: string, message: () => unknown): void {
    this.#id++;
    if (this.#subscribers.size === 0) return;
    const event = `id: ${this.#id}\nevent: ${name}\ndata: ${JSON.stringify(message())}\n\n`;
    for (const subscriber of this.#subscribers) subscriber.send(event);
  }

  #stopKeepAlive(): void {
    clearInterval(this.#keepAlive);
    this.#keepAlive = undefined;
  }
}
