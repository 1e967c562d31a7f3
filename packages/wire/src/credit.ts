import { WireError } from "./wire-error.ts";

/**
 * The sending side of one window: how much the peer allows, as an absolute count of bytes since the
 * beginning. Absolute limits are idempotent: a repeat or a late one changes nothing (RFC 9000 §4.1 has
 * the same form).
 */
export class SendCredit {
  readonly #window: number;
  #limit: number;
  #sent = 0;

  /** `windowBytes` is the allowance at the start. */
  constructor(windowBytes: number) {
    this.#window = windowBytes;
    this.#limit = windowBytes;
  }

  /** Bytes that may be sent now. */
  get available(): number {
    return this.#limit - this.#sent;
  }

  /** Takes `bytes` from the allowance; the caller has looked at `available`. */
  charge(bytes: number): void {
    this.#sent += bytes;
  }

  /**
   * The peer allows `limit` bytes in all. One that does not grow is ignored.
   * @throws WireError `flow_control` where it exceeds what was sent by over two windows: no peer that
   *   keeps to the rules gets there.
   */
  allow(limit: number): void {
    if (limit > this.#sent + 2 * this.#window) {
      throw new WireError(
        "flow_control",
        `credit limit ${limit} is over two windows ahead of ${this.#sent} bytes sent`,
      );
    }
    if (limit > this.#limit) this.#limit = limit;
  }
}

/**
 * The receiving side of one window. `receive` counts what came, `release` what is free again; a grant
 * is due once `1/threshold` of the window is.
 */
export class ReceiveCredit {
  readonly #window: number;
  readonly #step: number;
  #granted: number;
  #received = 0;
  #released = 0;

  /** A grant is due when `windowBytes / threshold` bytes have been released since the last one. */
  constructor(windowBytes: number, threshold: number) {
    this.#window = windowBytes;
    this.#step = Math.floor(windowBytes / threshold);
    this.#granted = windowBytes;
  }

  /** Bytes received and not released. */
  get held(): number {
    return this.#received - this.#released;
  }

  /** Counts `bytes`; false where the peer had no allowance for them. */
  receive(bytes: number): boolean {
    this.#received += bytes;
    return this.#received <= this.#granted;
  }

  /** `bytes` of what was received are free again. True where a grant is due. */
  release(bytes: number): boolean {
    this.#released += bytes;
    return this.#released + this.#window - this.#granted >= this.#step;
  }

  /** The new limit to send; from here on it is granted. */
  grant(): number {
    this.#granted = this.#released + this.#window;
    return this.#granted;
  }
}
