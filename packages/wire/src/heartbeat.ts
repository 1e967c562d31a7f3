import type { Clock, Timer } from "./clock.ts";

/** Both in milliseconds; the wait counts from the last received byte. */
export interface HeartbeatSettings {
  readonly intervalMs: number;
  readonly waitMs: number;
}

/** Spec rule 22. */
export const DEFAULT_HEARTBEAT: HeartbeatSettings = { intervalMs: 2_000, waitMs: 5_000 };

/** A wall clock this far ahead of the monotonic one says that the machine slept, in milliseconds. */
const SLEPT_MS = 5_000;
/** How long a peer has to answer after a sleep, in milliseconds. */
const AWAKENED_MS = 2_000;

/**
 * Says `dead` when nothing has come for the agreed time. Any received byte is a sign of life; what was sent
 * is none. A process that was stalled itself must not blame its peer: before giving up it lets the
 * input that is already waiting be read.
 */
export class Heartbeat {
  #settings: HeartbeatSettings;
  readonly #clock: Clock;
  readonly #ping: (sequence: number) => void;
  readonly #dead: () => void;
  #sequence = 0;
  #sentAt = 0;
  #received: number;
  #reads = 0;
  #deadline: Timer | undefined;
  #beat: Timer | undefined;
  #wallAhead: number;
  #stopped = false;
  readonly #probes = new Set<(alive: boolean) => void>();
  /** Round trip of the last answered ping, in milliseconds. */
  roundTripMs: number | undefined;

  /** Starts at once. `ping` sends one; `dead` is called at most once. */
  constructor(options: {
    readonly settings: HeartbeatSettings;
    readonly clock: Clock;
    readonly ping: (sequence: number) => void;
    readonly dead: () => void;
  }) {
    this.#settings = options.settings;
    this.#clock = options.clock;
    this.#ping = options.ping;
    this.#dead = options.dead;
    this.#received = this.#clock.now();
    this.#wallAhead = this.#clock.wallNow() - this.#received;
    this.#nextBeat();
    this.#watch(this.#settings.waitMs);
  }

  /** Takes effect from the next beat. */
  set settings(settings: HeartbeatSettings) {
    this.#settings = settings;
    this.#beat?.cancel();
    this.#deadline?.cancel();
    if (this.#stopped) return;
    this.#nextBeat();
    this.#watch(Math.max(0, settings.waitMs - this.silentMs));
  }

  /** Milliseconds since the last byte. */
  get silentMs(): number {
    return this.#clock.now() - this.#received;
  }

  /** A byte came. */
  received(): void {
    this.#reads++;
    this.#received = this.#clock.now();
    if (this.#probes.size > 0) this.#answerProbes(true);
  }

  /** The answer to a ping came. */
  acknowledged(sequence: number): void {
    if (sequence === this.#sequence) this.roundTripMs = this.#clock.now() - this.#sentAt;
  }

  /** Pings now. Resolves with true at the next byte, with false where none comes within `timeoutMs` or it is stopped. */
  async probe(timeoutMs: number): Promise<boolean> {
    if (this.#stopped) return false;
    const { promise, resolve } = Promise.withResolvers<boolean>();
    this.#probes.add(resolve);
    // As with the deadline: what is already waiting is read first.
    const timer = this.#clock.setTimer(() => this.#clock.defer(() => resolve(false)), timeoutMs);
    this.#sendPing();
    try {
      return await promise;
    } finally {
      timer.cancel();
      this.#probes.delete(resolve);
    }
  }

  /** No further call of `ping` or `dead`. Idempotent. */
  stop(): void {
    this.#stopped = true;
    this.#beat?.cancel();
    this.#deadline?.cancel();
    this.#answerProbes(false);
  }

  #answerProbes(alive: boolean): void {
    for (const answer of this.#probes) answer(alive);
    this.#probes.clear();
  }

  #sendPing(): void {
    this.#sentAt = this.#clock.now();
    this.#ping(++this.#sequence);
  }

  #nextBeat(): void {
    this.#beat = this.#clock.setTimer(() => {
      if (this.#slept()) this.#awaken();
      this.#sendPing();
      this.#nextBeat();
    }, this.#settings.intervalMs);
  }

  #slept(): boolean {
    const ahead = this.#clock.wallNow() - this.#clock.now();
    const slept = ahead - this.#wallAhead > SLEPT_MS;
    this.#wallAhead = ahead;
    return slept;
  }

  #watch(delayMs: number): void {
    this.#expect(delayMs, () => this.silentMs < this.#settings.waitMs);
  }

  // The old silence says nothing: did anything come since now?
  #awaken(): void {
    this.#deadline?.cancel();
    const before = this.#reads;
    this.#expect(AWAKENED_MS, () => this.#reads !== before);
  }

  // Gives up after `delayMs` unless `alive`, then or once the input that is already waiting has been read.
  #expect(delayMs: number, alive: () => boolean): void {
    const goOn = (): boolean => {
      if (!alive()) return false;
      this.#watch(Math.max(0, this.#settings.waitMs - this.silentMs));
      return true;
    };
    this.#deadline = this.#clock.setTimer(() => {
      if (goOn()) return;
      this.#clock.defer(() => {
        if (this.#stopped || goOn()) return;
        this.stop();
        this.#dead();
      });
    }, delayMs);
  }
}
