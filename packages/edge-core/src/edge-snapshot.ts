import type { CatalogNode, CatalogProvider } from "./catalog.ts";
import type { Configuration } from "./configuration.ts";
import type { Dispatcher } from "./dispatcher.ts";
import type { NodeRegistry, Owner } from "./node-registry.ts";
import type { Pool } from "./pool.ts";
import type { EdgeSnapshot, NodeSnapshot, ProviderSnapshot } from "./snapshot.ts";

/** Messages that were ignored, over all connections since the Edge's start. */
export interface WireTotals {
  readonly unknownMessages: number;
  readonly lateMessages: number;
}

/** Puts the snapshot together: everything that is configured, connected or not (spec rule 4), and what still has work. */
export function edgeSnapshot(state: {
  readonly edge: Omit<EdgeSnapshot["edge"], "config_revision">;
  readonly configuration: Configuration;
  readonly registry: NodeRegistry;
  readonly dispatcher: Dispatcher;
  readonly pool: Pool;
  readonly streams: number;
  readonly wire: WireTotals;
}): EdgeSnapshot {
  const { edge, configuration, registry, dispatcher, pool, streams, wire } = state;
  const { catalog } = configuration;
  return {
    edge: { ...edge, config_revision: catalog.revision },
    nodes: configuration.visible.map((node) => nodeSnapshot(node, registry.ready(node.record.name))),
    models: catalog.models.map((model) => ({
      key: model.key,
      waiting: pool.waitingFor(model.key),
      candidates: model.candidates.length,
      live: dispatcher.live(model),
    })),
    streams,
    totals: {
      relayed_bytes: { ...dispatcher.relayed },
      unknown_messages: wire.unknownMessages,
      late_messages: wire.lateMessages,
    },
  };
}

function nodeSnapshot({ record, providers }: CatalogNode, owner: Owner | undefined): NodeSnapshot {
  const roundTripMs = owner?.session.roundTripMs;
  return {
    name: record.name,
    connected: owner !== undefined,
    ...(owner === undefined ? {} : { config_revision: owner.configRevision }),
    ...(owner?.readySince === undefined ? {} : { ready_since: new Date(owner.readySince).toISOString() }),
    ...(roundTripMs === undefined ? {} : { round_trip_ms: Math.round(roundTripMs * 10) / 10 }),
    providers: providers.map((provider) => providerSnapshot(provider, owner)),
  };
}

function providerSnapshot({ record, resource }: CatalogProvider, owner: Owner | undefined): ProviderSnapshot {
  const reason = reasonOf({ record, resource }, owner);
  return {
    id: record.id,
    adapter: record.adapter,
    status: resource.live && owner?.draining === false ? "available" : "unavailable",
    health: resource.health,
    ...(reason === undefined ? {} : { reason }),
    capacity: {
      configured: resource.configuredCapacity,
      effective: resource.effectiveCapacity,
      long_configured: resource.configuredLong,
      long_effective: resource.effectiveLong,
    },
    in_flight: { normal: resource.inFlight - resource.inFlightLong, long: resource.inFlightLong },
    ...(resource.saturated ? { saturated: true } : {}),
    quarantined: resource.quarantined,
  };
}

function reasonOf(
  { record, resource }: Pick<CatalogProvider, "record" | "resource">,
  owner: Owner | undefined,
): string | undefined {
  if (!resource.configured) return "not configured any more; its work goes on to its end";
  if (!record.enabled) return "not enabled";
  if (owner === undefined) return "the node is not connected";
  return owner.draining ? "the node is draining" : resource.reason;
}
