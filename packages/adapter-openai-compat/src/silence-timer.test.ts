import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { SilenceTimer } from "./silence-timer.ts";

beforeEach(() => {
  vi.useFakeTimers({
    toFake: ["setTimeout", "clearTimeout", "setImmediate", "clearImmediate", "performance"],
  });
});
afterEach(() => {
  vi.useRealTimers();
});

function watched(limitMs: number): { timer: SilenceTimer; fired: () => number } {
  let fired = 0;
  const timer = new SilenceTimer();
  timer.watch(limitMs, () => void fired++);
  return { timer, fired: () => fired };
}

describe("SilenceTimer", () => {
  it("fires once, when the last sign of life is as old as the limit", async () => {
    const { timer, fired } = watched(100);
    for (let i = 0; i < 10; i++) {
      await vi.advanceTimersByTimeAsync(90);
      timer.touch();
    }
    expect(fired()).toBe(0);
    await vi.advanceTimersByTimeAsync(98);
    expect(fired()).toBe(0);
    await vi.advanceTimersByTimeAsync(4);
    expect(fired()).toBe(1);
    await vi.advanceTimersByTimeAsync(1000);
    expect(fired()).toBe(1);
  });

  it("uses one timer, however many signs of life there are", () => {
    const { timer } = watched(100);
    for (let i = 0; i < 1000; i++) timer.touch();
    expect(vi.getTimerCount()).toBe(1);
  });

  it("does not count suspended time", async () => {
    const { timer, fired } = watched(100);
    timer.suspend();
    await vi.advanceTimersByTimeAsync(10_000);
    timer.resume();
    await vi.advanceTimersByTimeAsync(90);
    expect(fired()).toBe(0);
    await vi.advanceTimersByTimeAsync(20);
    expect(fired()).toBe(1);
  });

  it("lets what has arrived during a blocked event loop count", () => {
    const { timer, fired } = watched(100);
    vi.advanceTimersByTime(99);
    vi.setSystemTime(Date.now() + 5000);
    // The timer is due; the sign of life that had arrived is seen after it, before the immediates.
    const due = setTimeout(() => timer.touch(), 1);
    vi.advanceTimersByTime(2);
    clearTimeout(due);
    expect(fired()).toBe(0);
  });

  it("never fires without a limit, nor after stop", async () => {
    const none = watched(0);
    none.timer.suspend();
    none.timer.resume();
    const stopped = watched(100);
    await vi.advanceTimersByTimeAsync(99);
    stopped.timer.stop();
    await vi.advanceTimersByTimeAsync(1e6);
    expect([none.fired(), stopped.fired()]).toEqual([0, 0]);
    expect(vi.getTimerCount()).toBe(0);
  });

  it("takes a limit longer than a timer can", async () => {
    const { fired } = watched(2 ** 32);
    await vi.advanceTimersByTimeAsync(2 ** 31);
    expect(fired()).toBe(0);
    await vi.advanceTimersByTimeAsync(2 ** 31 + 10);
    expect(fired()).toBe(1);
  });
});
