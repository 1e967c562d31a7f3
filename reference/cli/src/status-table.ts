import type { EdgeStatus } from "./edge-status.ts";

/** Longest name before it is cut, in characters. */
const MAX_NAME = 30;

/** The status as lines of at most `width` characters, to be read at a glance. */
export function statusTable(status: EdgeStatus, { width, now }: { width: number; now: number }): string[] {
  const { edge, nodes, models } = status;
  const providers = nodes.flatMap((node) => node.providers);
  const connected = nodes.filter((node) => node.connected).length;
  const rows: Row[] = nodes.flatMap((node) => [
    {
      name: node.name,
      state: node.connected ? "connected" : "offline",
      use: "",
      note: nodeNote(node, now),
    },
    ...node.providers.map((provider) => ({
      name: `  ${provider.id}`,
      state: stateOf(provider),
      use: `${inFlight(provider)} of ${provider.capacity.effective}`,
      note: providerNote(provider),
    })),
  ]);
  const names = [...rows.map(({ name }) => name), ...models.map(({ key }) => key), "NODE / PROVIDER"];
  const nameWidth = Math.min(MAX_NAME, Math.max(...names.map((name) => clean(name).length)));
  const line = (...cells: readonly [name: string, state: string, use: string, note: string]): string => {
    const [name, state, use, note] = cells.map(clean);
    const text = [
      cut(name ?? "", nameWidth).padEnd(nameWidth),
      (state ?? "").padEnd(11),
      (use ?? "").padEnd(10),
      note ?? "",
    ];
    return cut(text.join("  ").trimEnd(), width);
  };
  const facts = [
    `Edge ${edge.name} (${edge.mode})`,
    `up ${span(edge.uptime_sec)}`,
    `${connected} of ${nodes.length} nodes`,
    `${sum(providers.map(inFlight))} in flight`,
    `${sum(models.map(({ waiting }) => waiting))} waiting`,
  ];
  return [
    cut(clean(facts.join(", ")), width),
    "",
    line("NODE / PROVIDER", "STATE", "IN USE", ""),
    ...(rows.length === 0 ? ["no node is configured"] : []),
    ...rows.map(({ name, state, use, note }) => line(name, state, use, note)),
    "",
    line("MODEL", "LIVE", "WAITING", ""),
    ...(models.length === 0 ? ["no model is configured"] : []),
    ...models.map(({ key, live, candidates, waiting }) =>
      line(key, `${live} of ${candidates}`, String(waiting), live === 0 ? "unavailable" : ""),
    ),
  ];
}

interface Row {
  readonly name: string;
  readonly state: string;
  readonly use: string;
  readonly note: string;
}

type NodeStatus = EdgeStatus["nodes"][number];
type ProviderStatus = NodeStatus["providers"][number];

function nodeNote(node: NodeStatus, now: number): string {
  if (!node.connected) return "";
  const since = Date.parse(node.ready_since ?? "");
  return [
    ...(Number.isNaN(since) ? [] : [`for ${span(Math.max(0, now - since) / 1000)}`]),
    ...(node.round_trip_ms === undefined ? [] : [`round trip ${node.round_trip_ms} ms`]),
  ].join(", ");
}

function stateOf({ status, health }: ProviderStatus): string {
  if (status === "available") return health;
  return health === "offline" ? "offline" : "unavailable";
}

function providerNote(provider: ProviderStatus): string {
  const { reason, quarantined, capacity, status, saturated = false, in_flight: use } = provider;
  const { long_effective: long = 0 } = capacity;
  return [
    ...(status === "available" && capacity.effective < capacity.configured
      ? [`capacity lowered from ${capacity.configured}`]
      : []),
    ...(saturated ? ["full, says its Node"] : []),
    ...(quarantined > 0 ? [`${quarantined} in quarantine`] : []),
    ...(reason === undefined ? [] : [reason]),
    ...(long > 0 ? [`${use.long} of ${long} long`] : []),
  ].join("; ");
}

function inFlight({ in_flight: { normal, long } }: ProviderStatus): number {
  return normal + long;
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

function span(seconds: number): string {
  const whole = Math.floor(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min`;
  if (whole < 86_400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86_400)} d ${Math.floor((whole % 86_400) / 3600)} h`;
}

/** A Node has written some of it: what would move the terminal's cursor is not passed on. */
function clean(text: string): string {
  return text.replaceAll(/\p{C}/gu, "?");
}

function cut(text: string, width: number): string {
  const characters = Array.from(text);
  return characters.length <= width ? text : `${characters.slice(0, width - 1).join("")}…`;
}
