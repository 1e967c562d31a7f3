import { envReference } from "@iop/reference-host";
import { z } from "zod";

const name = z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/, {
  error: "must be 1 to 64 letters, digits, dots, dashes or underscores, and start with a letter or digit",
});
/** Longer than any sensible wait, and within what a timer takes in milliseconds. */
const seconds = z
  .number()
  .min(0)
  .max(7 * 24 * 3600);

const node = z.strictObject({
  name,
  mode: z
    .literal("legacy", {
      error: (issue) =>
        issue.input === "managed"
          ? "managed mode is not supported by this version of IOP; use legacy"
          : undefined,
    })
    .default("legacy"),
  edge: z.strictObject({
    host: z.string().min(1).max(253),
    port: z.int().min(1).max(65535).default(7443),
    name: name.optional(),
    insecure: z.boolean().default(false),
    tls: z
      .strictObject({
        ca: z.string().min(1).max(4096),
        server_name: z.string().min(1).max(253).optional(),
      })
      .optional(),
  }),
  token: envReference,
  // Spec rule 20.
  reconnect: z
    .strictObject({
      max_attempts: z.int().min(0).max(1_000_000).default(10),
      interval_sec: seconds.default(10),
    })
    .prefault({}),
  metrics: z
    .strictObject({
      enabled: z.boolean().default(false),
      host: z.string().min(1).max(253).default("127.0.0.1"),
      port: z.int().min(0).max(65535).default(9100),
    })
    .prefault({}),
  drain_timeout_sec: seconds.default(30),
  allow: z
    .strictObject({
      endpoints: z
        .array(
          z.string().regex(/^https?:\/\/(\[[0-9A-Fa-f:.]+\]|[^\s/:@?#[\]]+)(:(\d{1,5}|\*))?\/?$/, {
            error: "must be http(s)://HOST, http(s)://HOST:PORT or http(s)://HOST:*",
          }),
        )
        .default(["http://127.0.0.1:*", "http://localhost:*"]),
      env: z
        .array(
          z
            .string()
            .regex(/^[A-Za-z_][A-Za-z0-9_]*$/, { error: "must be the name of an environment variable" }),
        )
        .default([]),
    })
    .prefault({}),
});

/** node.yaml. */
export const nodeSchema = z.strictObject({ node });

/** node.yaml as read, defaults filled in. */
export type NodeFile = z.output<typeof nodeSchema>;

/** Keys that the documentation of fuller versions shows. */
export const unsupportedNodeKeys = ["node.store", "node.tls", "node.leases", "node.cli"];
