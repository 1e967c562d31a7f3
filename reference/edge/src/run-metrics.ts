import type { Edge, NodeEvent, RunOutcomeEvent, Usage } from "@iop/edge-core";
import type { RequestInfo } from "@iop/edge-http";
import { BoundedLabel, OTHER } from "@iop/reference-host";
import { Counter, Histogram, type Registry } from "prom-client";

const WHERE = ["model", "node", "provider"] as const;
/** From what a cached answer takes to the longest agent runs, in seconds. */
const DURATION_BUCKETS = [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800];
/** From what a tunnel adds to what a cold model takes to load, in seconds. */
const FIRST_BYTE_BUCKETS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120];

/** From what is no wait to more than the default of the queue's timeout, in seconds. */
const QUEUE_WAIT_BUCKETS = [0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120];

const TOKEN_KINDS: ReadonlyArray<readonly [Exclude<keyof Usage, "partial">, string]> = [
  ["inputTokens", "input"],
  ["outputTokens", "output"],
  ["reasoningTokens", "reasoning"],
  ["cachedInputTokens", "cached_input"],
];

/** Counts what happens at an Edge. Each request counts once: by its run where it was dispatched, else by its refusal. */
export class RunMetrics {
  readonly #edge: Pick<Edge, "events" | "models" | "snapshot">;
  readonly #codes = new BoundedLabel();
  readonly #requests: Counter<"model" | "node" | "provider" | "outcome" | "code">;
  readonly #duration: Histogram<(typeof WHERE)[number]>;
  readonly #firstByte: Histogram<(typeof WHERE)[number]>;
  readonly #queueWait: Histogram<"model">;
  readonly #attempts: Counter<(typeof WHERE)[number]>;
  readonly #tokens: Counter<"model" | "node" | "provider" | "kind">;
  readonly #nodeEvents: Counter<"node" | "type">;

  constructor(edge: Pick<Edge, "events" | "models" | "snapshot">, registry: Registry) {
    this.#edge = edge;
    const registers = [registry];
    this.#requests = new Counter({
      name: "iop_requests_total",
      help: "Requests for a model that are over, by how they ended.",
      labelNames: [...WHERE, "outcome", "code"],
      registers,
    });
    this.#duration = new Histogram({
      name: "iop_request_duration_seconds",
      help: "From the submission of a request until its provider's work had stopped.",
      labelNames: WHERE,
      buckets: DURATION_BUCKETS,
      registers,
    });
    this.#firstByte = new Histogram({
      name: "iop_request_first_byte_seconds",
      help: "From the submission of a request until the first bytes of its response's body.",
      labelNames: WHERE,
      buckets: FIRST_BYTE_BUCKETS,
      registers,
    });
    this.#queueWait = new Histogram({
      name: "iop_queue_wait_seconds",
      help: "How long requests waited for a provider, whether they got one or not.",
      labelNames: ["model"],
      buckets: QUEUE_WAIT_BUCKETS,
      registers,
    });
    this.#attempts = new Counter({
      name: "iop_request_attempts_total",
      help: "Providers that were asked for the dispatched requests; by the last one, all before it refused.",
      labelNames: WHERE,
      registers,
    });
    this.#tokens = new Counter({
      name: "iop_tokens_total",
      help: "Tokens as providers reported them. Input includes cached_input, output includes reasoning.",
      labelNames: [...WHERE, "kind"],
      registers,
    });
    this.#nodeEvents = new Counter({
      name: "iop_node_events_total",
      help: "Connections and disconnections of nodes, and refused registrations.",
      labelNames: ["node", "type"],
      registers,
    });
    edge.events.on("run", (event) => this.#run(event)).on("node", (event) => this.#node(event));
  }

  /** Takes in a request of the HTTP surface that is over; one that was dispatched has its run. */
  request({ operation, model, outcome, code, dispatch, queuedMs }: RequestInfo): void {
    if (dispatch !== undefined || operation === undefined || operation === "models") return;
    const label = this.#modelLabel(model);
    if (queuedMs !== undefined) this.#queueWait.observe({ model: label }, queuedMs / 1000);
    this.#requests.inc({
      model: label,
      node: "",
      provider: "",
      outcome: outcome === "client_closed" ? "cancelled" : "refused",
      code: code === undefined ? "" : this.#codes.of(code),
    });
  }

  #run(event: RunOutcomeEvent): void {
    const { model, dispatch, outcome, code, status, firstByteMs, durationMs, usage } = event;
    const where = { model, node: dispatch.nodeId, provider: dispatch.providerId };
    // The provider's own refusal is a complete answer, and still what an operator wants to see.
    const said = code ?? (status !== undefined && status >= 400 ? `http_${status}` : undefined);
    this.#requests.inc({ ...where, outcome, code: said === undefined ? "" : this.#codes.of(said) });
    this.#attempts.inc(where, event.attempts);
    this.#queueWait.observe({ model }, event.queuedMs / 1000);
    this.#duration.observe(where, durationMs / 1000);
    if (firstByteMs !== undefined) this.#firstByte.observe(where, firstByteMs / 1000);
    if (usage === undefined) return;
    for (const [key, kind] of TOKEN_KINDS) {
      const count = usage[key];
      if (count !== undefined && count > 0) this.#tokens.inc({ ...where, kind }, count);
    }
  }

  #node({ node, type }: NodeEvent): void {
    // Whoever is refused may have claimed any name.
    const isKnown = this.#edge.snapshot().nodes.some(({ name }) => name === node);
    this.#nodeEvents.inc({ node: isKnown ? node : OTHER, type });
  }

  #modelLabel(model: string | undefined): string {
    if (model === undefined) return "";
    return this.#edge.models().some(({ key }) => key === model) ? model : OTHER;
  }
}
