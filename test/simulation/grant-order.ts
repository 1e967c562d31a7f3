import type { Resource } from "../../packages/edge-core/src/resource.ts";
import type { Job } from "./job.ts";
import { isEarlier } from "./job.ts";
import type { Given } from "./ledger-audit.ts";
import { nameOf } from "./ledger-audit.ts";
import { INPUT_TOKENS } from "./shapes.ts";

/**
 * Who among those who `waited` all along was passed over by one who comes after it, although the place would have
 * served it, as a sentence; undefined where nobody was. `given` in the order in which the places were given.
 */
export function passedOver(options: {
  readonly given: readonly Given[];
  readonly takers: ReadonlyMap<Given, Job>;
  readonly waited: readonly Job[];
  readonly serves: (resource: Resource, job: Job) => boolean;
}): string | undefined {
  const { given, takers, waited, serves } = options;
  const first = new Map<Job, number>();
  for (const [index, each] of given.entries()) {
    const taker = takers.get(each);
    if (taker !== undefined && !first.has(taker)) first.set(taker, index);
  }
  for (const [index, each] of given.entries()) {
    const taker = takers.get(each);
    if (taker === undefined) continue;
    for (const job of waited) {
      if (job === taker || !isEarlier(job, taker) || !serves(each.resource, job)) continue;
      const still = job.stage === "asking" && job.outcome === undefined && !first.has(job);
      if (!still && (first.get(job) ?? -1) <= index) continue;
      if (each.room[INPUT_TOKENS.indexOf(job.request.inputTokens)] === true)
        return `${taker.name} was granted ${nameOf(each.resource)} before ${job.name}`;
    }
  }
  return undefined;
}
