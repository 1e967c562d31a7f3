import { z } from "zod";

const count = z.number().min(0);

/** What is shown of `GET /api/snapshot`; a newer Edge may say more. */
export const edgeStatusSchema = z.looseObject({
  edge: z.looseObject({ name: z.string(), mode: z.string(), uptime_sec: count }),
  nodes: z.array(
    z.looseObject({
      name: z.string(),
      connected: z.boolean(),
      ready_since: z.string().optional(),
      round_trip_ms: count.optional(),
      providers: z.array(
        z.looseObject({
          id: z.string(),
          status: z.string(),
          health: z.string(),
          reason: z.string().optional(),
          capacity: z.looseObject({ configured: count, effective: count, long_effective: count.optional() }),
          in_flight: z.looseObject({ normal: count, long: count }),
          saturated: z.boolean().optional(),
          quarantined: count,
        }),
      ),
    }),
  ),
  models: z.array(z.looseObject({ key: z.string(), waiting: count, candidates: count, live: count })),
  streams: count,
});

export type EdgeStatus = z.output<typeof edgeStatusSchema>;
