import type { ServerResponse } from "node:http";

/** What one subscriber may cost. */
export interface SubscriberLimits {
  /** Unsent bytes that are kept for a subscriber. */
  readonly bufferedBytes: number;
  /** How long one that has lagged may take to read what is kept, in milliseconds. */
  readonly patienceMs: number;
}

/**
 * One response that events are written to. A reader that is slower than the events comes to the bound of
 * what is kept for it; from then on events are only counted, and once it has read the rest it is told how
 * many it missed, and the response ends. One that does not even read the rest is cut off.
 */
export class EventSubscriber {
  readonly #res: ServerResponse;
  readonly #limits: SubscriberLimits;
  #missed = 0;
  #ended = false;
  #patience: NodeJS.Timeout | undefined;

  /** `closed` is called once, when the connection is lost or the response complete. */
  constructor(res: ServerResponse, limits: SubscriberLimits, closed: () => void) {
    this.#res = res;
    this.#limits = limits;
    res.once("close", () => {
      this.#ended = true;
      clearTimeout(this.#patience);
      closed();
    });
  }

  /** Writes one event, framed. */
  send(event: string): void {
    if (this.#ended) return;
    if (this.#missed > 0) this.#missed++;
    else if (this.#hasRoom(event)) this.#res.write(event);
    else this.#lag();
  }

  /** Writes a comment, which tells both ends that the connection lives; left out where events wait anyway. */
  keepAlive(comment: string): void {
    if (!this.#ended && this.#missed === 0 && this.#hasRoom(comment)) this.#res.write(comment);
  }

  /** Ends the response after what is kept. */
  end(last = ""): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#res.end(last);
    this.#wait();
  }

  #hasRoom(text: string): boolean {
    return this.#res.writableLength + text.length <= this.#limits.bufferedBytes;
  }

  #lag(): void {
    this.#missed = 1;
    this.#wait();
    // Its callback comes when all before it has been taken; `drain` would not come below the socket's own mark.
    this.#res.write(": lagging\n\n", () => {
      this.end(`event: dropped\ndata: ${JSON.stringify({ missed: this.#missed })}\n\n`);
    });
  }

  #wait(): void {
    clearTimeout(this.#patience);
    this.#patience = setTimeout(() => this.#res.destroy(), this.#limits.patienceMs);
  }
}
