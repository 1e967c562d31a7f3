import { EventEmitter } from "node:events";
import type { EdgeEvents, EdgeSnapshot, RunOutcomeEvent } from "@iop/edge-core";
import type { RequestInfo } from "@iop/edge-http";
import { register } from "prom-client";
import { expect, it } from "vitest";
import { type EdgeMetrics, createEdgeMetrics } from "./edge-metrics.ts";

const provider = {
  id: "p",
  adapter: "openai-compat",
  status: "available",
  health: "ok",
  capacity: { configured: 8, effective: 7, long_configured: 2, long_effective: 2 },
  in_flight: { normal: 3, long: 1 },
  saturated: true,
  quarantined: 1,
} as const;

const connected: EdgeSnapshot = {
  edge: { name: "e", mode: "legacy", uptime_sec: 1, config_revision: 1 },
  nodes: [
    { name: "n", connected: true, round_trip_ms: 1.5, providers: [provider] },
    { name: "gone", connected: false, providers: [] },
  ],
  models: [{ key: "m", waiting: 2, candidates: 3, live: 1 }],
  streams: 4,
  totals: { relayed_bytes: { request: 10, response: 20 }, unknown_messages: 1, late_messages: 2 },
};

class FakeEdge {
  readonly emitter = new EventEmitter();
  current: EdgeSnapshot = connected;
  get events(): EdgeEvents {
    return this.emitter;
  }
  models = () => [{ key: "m", candidates: 3, live: 1 }];
  snapshot = () => this.current;

  run(event: Partial<RunOutcomeEvent> = {}): void {
    this.emitter.emit("run", {
      requestId: "r",
      model: "m",
      operation: "chat_completions",
      dispatch: { nodeId: "n", providerId: "p", target: "t", usageAttribution: "provider" },
      outcome: "completed",
      queuedMs: 0,
      attempts: 1,
      durationMs: 1_500,
      at: "",
      ...event,
    });
  }
}

const refused: RequestInfo = {
  requestId: "r",
  method: "POST",
  operation: "chat_completions",
  key: undefined,
  model: undefined,
  status: 401,
  durationMs: 1,
  outcome: "refused",
  code: "invalid_api_key",
  queuedMs: undefined,
  dispatch: undefined,
  usage: undefined,
};

/** Every sample by its name and labels, as the text says them. */
async function scrape(metrics: EdgeMetrics): Promise<Map<string, number>> {
  const { contentType, text } = await metrics.text();
  expect(contentType).toMatch(/^text\/plain; version=0\.0\.4/);
  const samples = new Map<string, number>();
  const typed = new Set<string>();
  for (const line of text.trimEnd().split("\n")) {
    const type = /^# TYPE (\S+) (counter|gauge|histogram|summary)$/.exec(line);
    if (type?.[1] !== undefined) typed.add(type[1]);
    if (line.startsWith("#") || line === "") continue;
    const [, sample = "", name = "", value] = /^(([a-z_][a-z0-9_]*)(?:\{.*\})?) (\S+)$/.exec(line) ?? [];
    expect(typed, line).toContain(typed.has(name) ? name : name.replace(/_(bucket|sum|count)$/, ""));
    expect(samples.has(sample), `${sample} stands twice`).toBe(false);
    samples.set(sample, Number(value));
  }
  return samples;
}

const where = `model="m",node="n",provider="p"`;

it("shows the snapshot of the moment, and nothing of one before", async () => {
  const edge = new FakeEdge();
  const metrics = createEdgeMetrics(edge);
  const samples = await scrape(metrics);
  expect(
    Object.fromEntries(
      [...samples].filter(([name]) => /^iop_(node|provider|model|open|relayed|wire)/.test(name)),
    ),
  ).toEqual({
    iop_nodes_configured: 2,
    iop_nodes_connected: 1,
    'iop_node_connected{node="n"}': 1,
    'iop_node_connected{node="gone"}': 0,
    'iop_node_round_trip_seconds{node="n"}': 0.0015,
    'iop_provider_up{node="n",provider="p"}': 1,
    'iop_provider_capacity{node="n",provider="p"}': 8,
    'iop_provider_effective_capacity{node="n",provider="p"}': 7,
    'iop_provider_in_flight{node="n",provider="p",class="normal"}': 3,
    'iop_provider_in_flight{node="n",provider="p",class="long"}': 1,
    'iop_provider_long_capacity{node="n",provider="p"}': 2,
    'iop_provider_saturated{node="n",provider="p"}': 1,
    'iop_provider_quarantined{node="n",provider="p"}': 1,
    'iop_model_candidates{model="m"}': 3,
    'iop_model_live_candidates{model="m"}': 1,
    'iop_model_waiting{model="m"}': 2,
    iop_open_streams: 4,
    'iop_relayed_bytes_total{direction="request"}': 10,
    'iop_relayed_bytes_total{direction="response"}': 20,
    'iop_wire_messages_ignored_total{reason="late"}': 2,
    'iop_wire_messages_ignored_total{reason="unknown"}': 1,
  });
  edge.current = { ...connected, nodes: [], models: [] };
  const later = await scrape(metrics);
  expect([...later.keys()].filter((name) => /\{node=|\{model=/.test(name))).toEqual([]);
  expect(later.get('iop_relayed_bytes_total{direction="response"}')).toBe(20);
});

it("counts each request once: by its run, or by its refusal", async () => {
  const edge = new FakeEdge();
  const metrics = createEdgeMetrics(edge);
  edge.run({
    firstByteMs: 20,
    usage: { inputTokens: 5, outputTokens: 7, reasoningTokens: 2, cachedInputTokens: 0 },
  });
  edge.run({ outcome: "error", code: "node_disconnected", queuedMs: 2_000, attempts: 3 });
  edge.run({ status: 429 });
  const dispatch = { nodeId: "n", providerId: "p", target: "t", usageAttribution: "provider" };
  metrics.request({ ...refused, status: 200, outcome: "completed", code: undefined, model: "m", dispatch });
  metrics.request({ ...refused, status: 200, outcome: "completed", code: undefined, operation: "models" });
  metrics.request({ ...refused, operation: undefined, code: "not_found" });
  metrics.request(refused);
  metrics.request({ ...refused, model: "m", code: "queue_timeout", queuedMs: 60_000 });
  metrics.request({ ...refused, model: "m", outcome: "client_closed", code: undefined });
  for (let index = 0; index < 3; index++)
    metrics.request({ ...refused, model: `guess-${index}`, code: "model_not_found" });
  const samples = await scrape(metrics);
  expect(Object.fromEntries([...samples].filter(([name]) => name.startsWith("iop_requests_total")))).toEqual({
    [`iop_requests_total{${where},outcome="completed",code=""}`]: 1,
    [`iop_requests_total{${where},outcome="error",code="node_disconnected"}`]: 1,
    [`iop_requests_total{${where},outcome="completed",code="http_429"}`]: 1,
    'iop_requests_total{model="",node="",provider="",outcome="refused",code="invalid_api_key"}': 1,
    'iop_requests_total{model="m",node="",provider="",outcome="refused",code="queue_timeout"}': 1,
    'iop_requests_total{model="m",node="",provider="",outcome="cancelled",code=""}': 1,
    'iop_requests_total{model="<other>",node="",provider="",outcome="refused",code="model_not_found"}': 3,
  });
  expect(samples.get(`iop_request_attempts_total{${where}}`)).toBe(5);
  expect(samples.get('iop_queue_wait_seconds_count{model="m"}')).toBe(4);
  expect(samples.get('iop_queue_wait_seconds_sum{model="m"}')).toBe(62);
  expect(samples.get(`iop_request_duration_seconds_sum{${where}}`)).toBe(4.5);
  expect(samples.get(`iop_request_first_byte_seconds_count{${where}}`)).toBe(1);
  expect(samples.get(`iop_request_first_byte_seconds_bucket{le="0.025",${where}}`)).toBe(1);
  expect(samples.get(`iop_request_first_byte_seconds_bucket{le="0.01",${where}}`)).toBe(0);
  expect(Object.fromEntries([...samples].filter(([name]) => name.startsWith("iop_tokens_total")))).toEqual({
    [`iop_tokens_total{${where},kind="input"}`]: 5,
    [`iop_tokens_total{${where},kind="output"}`]: 7,
    [`iop_tokens_total{${where},kind="reasoning"}`]: 2,
  });
});

it("does not grow with what a Node or a stranger makes up", async () => {
  const edge = new FakeEdge();
  const metrics = createEdgeMetrics(edge);
  edge.run({ outcome: "error", code: 'x"}\n# evil' });
  for (let index = 0; index < 500; index++) {
    edge.run({ outcome: "error", code: `made_up_${index}` });
    edge.emitter.emit("node", { node: `stranger-${index}`, type: "refused", at: "" });
  }
  edge.emitter.emit("node", { node: "n", type: "connected", at: "" });
  const names = [...(await scrape(metrics)).keys()];
  expect(names.filter((name) => name.startsWith("iop_requests_total"))).toHaveLength(65);
  expect(names.filter((name) => name.startsWith("iop_node_events_total"))).toEqual([
    'iop_node_events_total{node="<other>",type="refused"}',
    'iop_node_events_total{node="n",type="connected"}',
  ]);
});

it("shows the process and its event loop, in a registry of its own", async () => {
  const samples = await scrape(createEdgeMetrics(new FakeEdge()));
  const build = [...samples.keys()].find((name) => name.startsWith("iop_build_info"));
  expect(build).toMatch(/\{component="edge",version="\d+\.\d+\.\d+[^"]*",nodejs="v\d+/);
  for (const name of [
    "nodejs_eventloop_lag_p50_seconds",
    "nodejs_eventloop_lag_p99_seconds",
    "nodejs_eventloop_lag_max_seconds",
    "process_resident_memory_bytes",
    "process_cpu_seconds_total",
  ])
    expect(samples.get(name), name).toBeTypeOf("number");
  expect(register.getMetricsAsArray()).toEqual([]);
});
