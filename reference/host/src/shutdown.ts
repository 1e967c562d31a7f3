import { constants } from "node:os";

const SIGNALS = ["SIGINT", "SIGTERM"] as const;

/** Resolves when a signal fires, or at once where it has. */
export function whenAborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
}

export interface Shutdown extends Disposable {
  /** Aborted by the first SIGINT or SIGTERM, or when the parent process that spawned this one with an IPC channel is gone. */
  readonly signal: AbortSignal;
}

/**
 * Watches for the end: the first signal asks to drain, a second one ends the process at once with
 * 128 plus the signal's number, as shells do. Dispose it to stop watching.
 */
export function watchShutdown(onBegin?: (reason: string) => void): Shutdown {
  const controller = new AbortController();
  const begin = (reason: string): void => {
    onBegin?.(reason);
    controller.abort();
  };
  const onSignal = (signal: NodeJS.Signals): void => {
    if (controller.signal.aborted) process.exit(128 + constants.signals[signal]);
    begin(signal);
  };
  const onDisconnect = (): void => {
    if (!controller.signal.aborted) begin("parent process gone");
  };
  for (const signal of SIGNALS) process.on(signal, onSignal);
  if (process.connected) {
    process.on("disconnect", onDisconnect);
    // Listening would otherwise keep the process alive.
    process.channel?.unref();
  }
  return {
    signal: controller.signal,
    [Symbol.dispose]: () => {
      for (const signal of SIGNALS) process.off(signal, onSignal);
      process.off("disconnect", onDisconnect);
    },
  };
}
