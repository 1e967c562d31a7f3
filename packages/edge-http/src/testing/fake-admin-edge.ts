import type {
  EdgeEventMap,
  EdgeEvents,
  EdgeSnapshot,
  ModelInfo,
  NodeEvent,
  RunOutcomeEvent,
} from "@iop/edge-core";
import { EventEmitter } from "node:events";
import type { AdminEdge } from "../admin-surface.ts";

type Listener<K extends keyof EdgeEventMap> = (payload: EdgeEventMap[K]) => void;

/** An Edge that the test says everything of. */
export class FakeAdminEdge implements AdminEdge {
  readonly #emitter = new EventEmitter();
  modelInfos: readonly ModelInfo[] = [];
  nodes: EdgeSnapshot["nodes"] = [];

  readonly events: EdgeEvents = {
    on: (event, listener) => this.#subscribe("on", event, listener),
    once: (event, listener) => this.#subscribe("once", event, listener),
    off: (event, listener) => this.#subscribe("off", event, listener),
  };

  models(): readonly ModelInfo[] {
    return this.modelInfos;
  }

  snapshot(): EdgeSnapshot {
    return {
      edge: { name: "edge-1", mode: "legacy", uptime_sec: 1, config_revision: 1 },
      nodes: this.nodes,
      models: this.modelInfos.map((model) => ({ ...model, waiting: 0 })),
      streams: 0,
      totals: { relayed_bytes: { request: 0, response: 0 }, unknown_messages: 0, late_messages: 0 },
    };
  }

  get listeners(): number {
    return this.#emitter.listenerCount("node") + this.#emitter.listenerCount("run");
  }

  node(event: Partial<NodeEvent> = {}): void {
    this.#emitter.emit("node", { node: "n", type: "connected", at: "2026-12-01T00:00:00.000Z", ...event });
  }

  run(event: Partial<RunOutcomeEvent> = {}): void {
    const dispatch = { nodeId: "n", providerId: "p", target: "t", usageAttribution: "provider" };
    this.#emitter.emit("run", {
      requestId: "r",
      model: "m",
      operation: "chat_completions",
      dispatch,
      outcome: "completed",
      queuedMs: 0,
      attempts: 1,
      durationMs: 12.345,
      at: "2026-12-01T00:00:00.000Z",
      ...event,
    });
  }

  #subscribe<K extends keyof EdgeEventMap>(
    how: "on" | "once" | "off",
    event: K,
    listener: Listener<K>,
  ): EdgeEvents {
    this.#emitter[how](event, listener);
    return this.events;
  }
}
