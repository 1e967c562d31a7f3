import { ExitCode } from "@iop/reference-host";
import { setTimeout as pause } from "node:timers/promises";
import { type AdminClient, AdminError } from "./admin-client.ts";
import type { EdgeStatus } from "./edge-status.ts";

/** Between two looks where no event says that something has changed: the start of a run is no event. */
const POLL_MS = 1_000;
/** Least time between two looks, in milliseconds, however many events come. */
const GAP_MS = 100;

export interface StatusView {
  show(status: EdgeStatus): void;
  /** The Edge does not answer; what was shown last may be old. */
  lost(message: string): void;
}

/**
 * Shows the status whenever something has changed, and once a second; by that alone where the stream of
 * events is not to be had. Ends when `signal` fires.
 * @throws AdminError where the first look fails, or the key is refused
 */
export async function watchStatus(client: AdminClient, view: StatusView, signal: AbortSignal): Promise<void> {
  view.show(await client.status(signal));
  const changes = new Changes();
  signal.addEventListener("abort", () => changes.happened(), { once: true });
  let following = false;
  const follow = async (): Promise<void> => {
    following = true;
    await client.follow(() => changes.happened(), signal).catch(() => {});
    following = false;
  };
  while (!signal.aborted) {
    if (!following) void follow();
    await changes.next();
    try {
      const status = await client.status(signal);
      if (!signal.aborted) view.show(status);
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof AdminError) || error.exitCode === ExitCode.refused) throw error;
      view.lost(error.message);
    }
    await pause(GAP_MS, undefined, { signal }).catch(() => {});
  }
}

/** Something happened, once or often, since somebody last waited for it. */
class Changes {
  #happened = false;
  #wake: (() => void) | undefined;

  happened(): void {
    this.#happened = true;
    this.#wake?.();
  }

  /** Resolves at the next, at once where there was one, and at the latest when it is time to look anyway. */
  async next(): Promise<void> {
    if (!this.#happened)
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, POLL_MS);
        this.#wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    this.#wake = undefined;
    this.#happened = false;
  }
}
