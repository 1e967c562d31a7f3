import type { ServerResponse } from "node:http";

/**
 * Waits for a client that reads more slowly than the provider writes, and gives up on one that has
 * stopped: no timer and no listener exists until it lags for the first time.
 *
 * Progress is a completed write of the socket. A lagging response has at most its high-water mark and
 * one chunk waiting, so whoever reads at all completes one.
 */
export class ConsumerWatch {
  readonly #res: ServerResponse;
  readonly #stallMs: number;
  readonly #onStall: () => void;
  #timer: NodeJS.Timeout | undefined;
  #waitingBytes = 0;
  /** Nothing more is written. */
  #last = false;
  #wake: (() => void) | undefined;

  /** `onStall` is called where bytes wait and none is accepted for `stallMs`. */
  constructor(res: ServerResponse, stallMs: number, onStall: () => void) {
    this.#res = res;
    this.#stallMs = stallMs;
    this.#onStall = onStall;
  }

  /** Resolves when the response takes more, or by `release`. Call it after a write that returned false. */
  drained(): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = resolve;
      this.#start();
    });
  }

  /** Watches what is still to be sent after the last write. */
  last(): void {
    this.#last = true;
    if (this.#res.writableLength > 0) this.#start();
  }

  /** Ends the watch and wakes who waits: the response is over, one way or the other. */
  release(): void {
    clearTimeout(this.#timer);
    this.#res.off("drain", this.#drain);
    this.#drain();
  }

  #start(): void {
    this.#waitingBytes = this.#res.writableLength;
    if (this.#timer !== undefined) {
      this.#timer.refresh();
      return;
    }
    this.#timer = setTimeout(() => this.#tick(), this.#stallMs);
    this.#res.on("drain", this.#drain);
  }

  readonly #drain = (): void => {
    const wake = this.#wake;
    this.#wake = undefined;
    wake?.();
  };

  #tick(): void {
    if (this.#wake === undefined && !this.#last) return;
    if (this.#res.writableLength < this.#waitingBytes) this.#start();
    else this.#onStall();
  }
}
