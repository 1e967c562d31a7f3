import type { EdgeSnapshot } from "@iop/edge-core";
import { Counter, Gauge, type Registry } from "prom-client";

const PROVIDER = ["node", "provider"] as const;

/**
 * Adds the metrics that show a snapshot. Nothing is kept up to date between two scrapes: call the result
 * with a snapshot right before each.
 */
export function addSnapshotMetrics(registry: Registry): (snapshot: EdgeSnapshot) => void {
  const gauge = <Label extends string = never>(
    name: string,
    help: string,
    labelNames: readonly Label[] = [],
  ): Gauge<Label> => new Gauge({ name, help, labelNames, registers: [registry] });
  const counter = <Label extends string>(
    name: string,
    help: string,
    labelNames: readonly Label[],
  ): Counter<Label> => new Counter({ name, help, labelNames, registers: [registry] });

  const nodes = gauge("iop_nodes_configured", "Nodes in the configuration.");
  const nodesConnected = gauge("iop_nodes_connected", "Nodes that are connected and ready.");
  const nodeConnected = gauge("iop_node_connected", "1 while the node is connected and ready, else 0.", [
    "node",
  ]);
  const roundTrip = gauge("iop_node_round_trip_seconds", "Round trip of the node's last heartbeat.", [
    "node",
  ]);
  const up = gauge("iop_provider_up", "1 while the provider can be dispatched to, else 0.", PROVIDER);
  const capacity = gauge("iop_provider_capacity", "Requests at a time, as configured.", PROVIDER);
  const effective = gauge(
    "iop_provider_effective_capacity",
    "Requests at a time that are possible now.",
    PROVIDER,
  );
  const inFlight = gauge("iop_provider_in_flight", "Requests that run.", [...PROVIDER, "class"]);
  const capacityLong = gauge(
    "iop_provider_long_capacity",
    "Of the capacity, what requests with a long input may use; 0 where no input counts as long.",
    PROVIDER,
  );
  const saturated = gauge(
    "iop_provider_saturated",
    "1 while it counts as full because its Node has refused work, else 0.",
    PROVIDER,
  );
  const quarantined = gauge(
    "iop_provider_quarantined",
    "Places whose work has not confirmed its cancel.",
    PROVIDER,
  );
  const candidates = gauge("iop_model_candidates", "Configured candidates of the model.", ["model"]);
  const live = gauge("iop_model_live_candidates", "Candidates that can be dispatched to now.", ["model"]);
  const waiting = gauge("iop_model_waiting", "Requests that wait for a provider.", ["model"]);
  const streams = gauge("iop_open_streams", "Open streams over all connections to nodes.");
  const relayed = counter(
    "iop_relayed_bytes_total",
    "Bytes of bodies: requests to providers, responses to callers.",
    ["direction"],
  );
  const ignored = counter(
    "iop_wire_messages_ignored_total",
    "Messages for streams that were over, or of an unknown kind.",
    ["reason"],
  );
  // A node or model that is no longer configured leaves no figure behind.
  const labelled = [
    nodeConnected,
    roundTrip,
    up,
    capacity,
    effective,
    capacityLong,
    inFlight,
    saturated,
    quarantined,
    candidates,
    live,
    waiting,
  ];

  return (snapshot) => {
    for (const metric of [...labelled, relayed, ignored]) metric.reset();
    nodes.set(snapshot.nodes.length);
    nodesConnected.set(snapshot.nodes.filter((node) => node.connected).length);
    for (const { name: node, ...rest } of snapshot.nodes) {
      nodeConnected.set({ node }, rest.connected ? 1 : 0);
      if (rest.round_trip_ms !== undefined) roundTrip.set({ node }, rest.round_trip_ms / 1000);
      for (const { id: provider, ...state } of rest.providers) {
        const where = { node, provider };
        up.set(where, state.status === "available" ? 1 : 0);
        capacity.set(where, state.capacity.configured);
        effective.set(where, state.capacity.effective);
        inFlight.set({ ...where, class: "normal" }, state.in_flight.normal);
        inFlight.set({ ...where, class: "long" }, state.in_flight.long);
        capacityLong.set(where, state.capacity.long_configured);
        saturated.set(where, state.saturated === true ? 1 : 0);
        quarantined.set(where, state.quarantined);
      }
    }
    for (const model of snapshot.models) {
      candidates.set({ model: model.key }, model.candidates);
      live.set({ model: model.key }, model.live);
      waiting.set({ model: model.key }, model.waiting);
    }
    streams.set(snapshot.streams);
    const { totals } = snapshot;
    relayed.inc({ direction: "request" }, totals.relayed_bytes.request);
    relayed.inc({ direction: "response" }, totals.relayed_bytes.response);
    ignored.inc({ reason: "late" }, totals.late_messages);
    ignored.inc({ reason: "unknown" }, totals.unknown_messages);
  };
}
