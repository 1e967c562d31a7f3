import type { Clock } from "@iop/wire";
import { WireError } from "@iop/wire";

/** Resolves after `ms` milliseconds, or as soon as `signal` fires. */
export async function pause(clock: Clock, ms: number, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return;
  const { promise, resolve } = Promise.withResolvers<void>();
  const wake = (): void => resolve();
  const timer = clock.setTimer(wake, ms);
  signal.addEventListener("abort", wake);
  try {
    await promise;
  } finally {
    timer.cancel();
    signal.removeEventListener("abort", wake);
  }
}

export interface DeadlineOptions<T> {
  readonly clock: Clock;
  /** In milliseconds. */
  readonly ms: number;
  /** How much longer, in milliseconds, a result counts that `work` has once its signal has fired. Default 0. */
  readonly settleMs?: number;
  readonly signal: AbortSignal;
  /** What is waited for, for the message. */
  readonly what: string;
  /** Given a result that came after the wait was over, to be released. */
  readonly late?: (value: T) => void;
}

/**
 * What `work` resolves with, for at most `ms` and `settleMs`. Settles on time even where `work` ignores the
 * signal that it is given.
 * @throws WireError `timeout`; the signal's reason when aborted; what `work` throws.
 */
export async function withDeadline<T>(
  options: DeadlineOptions<T>,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const { clock, ms, settleMs = 0, signal, what, late } = options;
  signal.throwIfAborted();
  const inner = new AbortController();
  const { promise, resolve, reject } = Promise.withResolvers<T>();
  let over = false;
  const giveUp = (reason: unknown): void => {
    over = true;
    inner.abort(reason);
    reject(reason);
  };
  const aborted = (): void => giveUp(signal.reason);
  const timeUp = (): void => {
    const error = new WireError("timeout", `${what}: over ${ms} ms`);
    if (settleMs === 0) return giveUp(error);
    inner.abort(error);
    timer = clock.setTimer(() => giveUp(error), settleMs);
  };
  let timer = clock.setTimer(timeUp, ms);
  signal.addEventListener("abort", aborted);
  const forward = async (): Promise<void> => {
    try {
      const value = await work(inner.signal);
      if (over) late?.(value);
      else resolve(value);
    } catch (error) {
      reject(inner.signal.aborted ? inner.signal.reason : error);
    }
  };
  void forward();
  try {
    return await promise;
  } finally {
    timer.cancel();
    signal.removeEventListener("abort", aborted);
  }
}
