import { isDeepStrictEqual } from "node:util";
import type { Edge } from "@iop/edge-core";
import { type AccessRules, HttpAccess } from "@iop/edge-http";
import { type Log, isLoopbackHost } from "@iop/reference-host";
import type { EdgeConfig } from "./edge-config.ts";

/** What an Edge's process cannot change while it runs. */
const FIXED: ReadonlyArray<readonly [key: string, read: (config: EdgeConfig) => unknown]> = [
  ["edge.name", ({ name }) => name],
  ["edge.mode", ({ mode }) => mode],
  ["edge.listen.nodes", ({ listen }) => listen.nodes],
  ["edge.listen.http.host", ({ listen }) => listen.http.host],
  ["edge.listen.http.port", ({ listen }) => listen.http.port],
  ["edge.listen.admin", ({ listen }) => listen.admin],
  ["edge.heartbeat", ({ heartbeat }) => heartbeat],
  ["edge.limits", ({ limits }) => limits],
  ["edge.queue", ({ queue }) => queue],
  ["edge.attribution_headers", ({ attributionHeaders }) => attributionHeaders],
  ["edge.drain_timeout_sec", ({ drainTimeoutMs }) => drainTimeoutMs],
  ["edge.tls", ({ tls }) => tls],
];

/** An Edge that serves, and what it was started with. */
export interface RunningEdge {
  readonly config: EdgeConfig;
  readonly edge: Edge;
  readonly access: HttpAccess;
  readonly log: Log;
}

/**
 * Takes over what a changed file says; what needs a restart is named in the log and left as it is.
 * @throws Error where it cannot be had; then nothing has changed.
 */
export function reloadEdge({ config, edge, access, log }: RunningEdge, next: EdgeConfig): void {
  const { http } = config.listen;
  // The file was judged by the address that it names, which may not be the one that is in use.
  if (next.apiKeys.length === 0 && !isLoopbackHost(http.host)) {
    throw new Error(
      `there are no api_keys, and the Edge listens on ${http.host}: anybody who reaches it could use every model`,
    );
  }
  const rules = accessRules(next, http.host);
  // Judged before anything changes.
  void new HttpAccess(rules);
  const { revision, nodes } = edge.reload({
    nodes: next.nodes,
    profiles: next.profiles,
    models: next.models,
  });
  access.replace(rules);
  const ignored = FIXED.filter(([, read]) => !isDeepStrictEqual(read(config), read(next))).map(
    ([key]) => key,
  );
  if (ignored.length > 0)
    log.warn({ keys: ignored }, `changed, but in force only after a restart: ${ignored.join(", ")}`);
  log.info({ revision, ...nodes }, "configuration reloaded");
}

/** Who may use the HTTP surface that listens on `host`. */
export function accessRules({ apiKeys, listen }: EdgeConfig, host: string): AccessRules {
  const { allowedHosts, allowedOrigins } = listen.http;
  const rules = { apiKeys, allowedOrigins };
  if (isLoopbackHost(host))
    return { ...rules, allowedHosts: ["localhost", "127.0.0.1", "[::1]", host, ...allowedHosts] };
  return allowedHosts.length > 0 ? { ...rules, allowedHosts } : rules;
}
