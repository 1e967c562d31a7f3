import { create } from "@bufbuild/protobuf";
import type { NodeConfigPayload, RuntimeProfile as WireProfile } from "@iop/wire";
import { NodeConfigPayloadSchema, ProviderConfigSchema, RuntimeProfileSchema } from "@iop/wire";

import { EdgeError } from "./edge-error.ts";
import type { ModelOptions } from "./edge-options.ts";
import type { RunDispatch } from "./edge-service.ts";
import type { NodeRecord, ProviderRecord } from "./node-record.ts";
import type { ProtocolProfile, RuntimeProfile } from "./protocol-profile.ts";
import { BUILT_IN_PROFILES } from "./protocol-profile.ts";
import type { LedgerPlan } from "./resource-ledger.ts";
import type { Resource } from "./resource.ts";

const MAX_WEIGHT = 1_000_000;

/** Milliseconds and counts travel as uint32. */
const MAX_UINT32 = 0xffff_ffff;

/** A configured provider, resolved. */
export interface CatalogProvider {
  readonly record: ProviderRecord;
  readonly profile: RuntimeProfile;
  readonly resource: Resource;
}

/** A configured node, resolved. */
export interface CatalogNode {
  readonly record: NodeRecord;
  readonly providers: readonly CatalogProvider[];
}

/** One way to serve a model, resolved. */
export interface Candidate {
  readonly provider: CatalogProvider;
  /** Share of requests beside the others of its model; 1 unless configured. */
  readonly weight: number;
  /** What a dispatch to it is attributed to; the configured identity (spec F12, rule 17). */
  readonly dispatch: RunDispatch;
}

/** A model that callers can name, resolved. */
export interface CatalogModel {
  readonly key: string;
  readonly candidates: readonly Candidate[];
}

/** The models, who can serve them, and how: everything that was configured, with its references resolved. Never changes. */
export class Catalog {
  /** Higher than those of the configurations before. */
  readonly revision: number;
  /** In the order of the configuration. */
  readonly nodes: readonly CatalogNode[];
  readonly models: readonly CatalogModel[];
  readonly #profiles: Readonly<Record<string, ProtocolProfile>>;
  readonly #bodyBytes: number;
  readonly #nodes = new Map<string, CatalogNode>();
  readonly #models = new Map<string, CatalogModel>();

  /**
   * Adds a resource for every provider to `resources`, to be committed once it is made.
   * @throws EdgeError `invalid_config`, naming the key.
   */
  constructor(options: {
    readonly revision: number;
    readonly nodes: readonly NodeRecord[];
    readonly profiles: Readonly<Record<string, ProtocolProfile>>;
    readonly models: readonly ModelOptions[];
    /** Longest request body, in bytes; told to Nodes. */
    readonly bodyBytes: number;
    readonly resources: LedgerPlan;
  }) {
    this.revision = options.revision;
    this.#profiles = { ...BUILT_IN_PROFILES, ...options.profiles };
    this.#bodyBytes = options.bodyBytes;
    for (const record of options.nodes) {
      if (record.name === "") throw invalid("nodes", "a node has no name");
      if (this.#nodes.has(record.name)) throw invalid(`nodes.${record.name}`, "is configured twice");
      this.#nodes.set(record.name, this.#resolveNode(record, options.resources));
    }
    for (const model of options.models) {
      if (this.#models.has(model.key)) throw invalid(`models.${model.key}`, "is configured twice");
      this.#models.set(model.key, this.#resolveModel(model));
    }
    this.nodes = [...this.#nodes.values()];
    this.models = [...this.#models.values()];
  }

  /** Undefined where no node has this name. */
  node(name: string): CatalogNode | undefined {
    return this.#nodes.get(name);
  }

  /** Undefined where no model has this key. */
  model(key: string): CatalogModel | undefined {
    return this.#models.get(key);
  }

  /**
   * The configuration that a Node is given: its enabled providers, each with its profile nested.
   * @throws EdgeError `invalid_config` where the record is not one of the catalog's or contradicts it.
   */
  configFor(record: NodeRecord): NodeConfigPayload {
    if (!this.#nodes.has(record.name)) throw invalid(`nodes.${record.name}`, "is not in the catalog");
    return create(NodeConfigPayloadSchema, {
      revision: BigInt(this.revision),
      bodyBytes: BigInt(this.#bodyBytes),
      providers: record.providers
        .filter((provider) => provider.enabled)
        .map((provider) =>
          create(ProviderConfigSchema, {
            id: provider.id,
            adapter: provider.adapter,
            endpoint: provider.endpoint ?? "",
            capacity: provider.capacity,
            profile: wireProfile(this.#resolveProfile(record, provider)),
            authEnv: provider.authEnv ?? "",
            firstByteTimeoutMs: provider.firstByteTimeoutMs,
            idleTimeoutMs: provider.idleTimeoutMs,
          }),
        ),
    });
  }

  #resolveNode(record: NodeRecord, resources: LedgerPlan): CatalogNode {
    const providers = new Map<string, CatalogProvider>();
    for (const provider of record.providers) {
      const key = `nodes.${record.name}.providers.${provider.id}`;
      if (provider.id === "") throw invalid(`nodes.${record.name}.providers`, "a provider has no id");
      if (providers.has(provider.id)) throw invalid(key, "is configured twice");
      checkNumber(`${key}.capacity`, provider.capacity, 1);
      if (provider.long !== undefined) {
        checkNumber(`${key}.long.capacity`, provider.long.capacity, 0);
        checkNumber(`${key}.long.thresholdTokens`, provider.long.thresholdTokens, 1);
      }
      checkNumber(`${key}.firstByteTimeoutMs`, provider.firstByteTimeoutMs, 0);
      checkNumber(`${key}.idleTimeoutMs`, provider.idleTimeoutMs, 0);
      providers.set(provider.id, {
        record: provider,
        profile: this.#resolveProfile(record, provider),
        resource: resources.add(record.name, provider.id, provider),
      });
    }
    return { record, providers: [...providers.values()] };
  }

  #resolveProfile(node: NodeRecord, provider: ProviderRecord): RuntimeProfile {
    const name = provider.profile;
    const profile = Object.hasOwn(this.#profiles, name) ? this.#profiles[name] : undefined;
    if (profile === undefined) {
      throw invalid(
        `nodes.${node.name}.providers.${provider.id}.profile`,
        `no profile is named ${JSON.stringify(name)}; known are ${Object.keys(this.#profiles).join(", ")}`,
      );
    }
    return { ...profile, name, extensions: profile.extensions ?? {} };
  }

  #resolveModel({ key, candidates }: ModelOptions): CatalogModel {
    if (candidates.length === 0) throw invalid(`models.${key}.candidates`, "is empty");
    return {
      key,
      candidates: candidates.map(({ node, provider, target, weight = 1 }, index) => {
        const path = `models.${key}.candidates[${index}]`;
        const ofNode = this.#nodes.get(node);
        if (ofNode === undefined) throw invalid(`${path}.node`, `no node is named ${JSON.stringify(node)}`);
        const found = ofNode.providers.find(({ record }) => record.id === provider);
        if (found === undefined)
          throw invalid(`${path}.provider`, `node ${node} has no provider ${JSON.stringify(provider)}`);
        if (!(weight > 0 && weight <= MAX_WEIGHT))
          throw invalid(`${path}.weight`, `${weight} is not a number over 0 and up to ${MAX_WEIGHT}`);
        const { usageAttribution } = found.record;
        return {
          provider: found,
          weight,
          dispatch: Object.freeze({ nodeId: node, providerId: provider, target, usageAttribution }),
        };
      }),
    };
  }
}

/** The path of an operation, where the profile offers it. */
export function operationPath(profile: RuntimeProfile, operation: string): string | undefined {
  return Object.hasOwn(profile.operations, operation) ? profile.operations[operation] : undefined;
}

function wireProfile(profile: RuntimeProfile): WireProfile {
  const { name, driver, auth, operations, capabilities, extensions } = profile;
  return create(RuntimeProfileSchema, {
    name,
    driver,
    ...(auth === undefined ? {} : { auth: { header: auth.header, scheme: auth.scheme ?? "" } }),
    operations: { ...operations },
    capabilities: [...capabilities],
    extensions: { ...extensions },
  });
}

function checkNumber(key: string, value: number, least: number): void {
  if (!Number.isInteger(value) || value < least || value > MAX_UINT32)
    throw invalid(key, `${value} is not a whole number from ${least} to ${MAX_UINT32}`);
}

function invalid(key: string, problem: string): EdgeError {
  return new EdgeError("invalid_config", `${key}: ${problem}`);
}
