import { create, equals } from "@bufbuild/protobuf";
import type {
  Clock,
  ConfigRefreshResponse,
  NodeConfigPayload,
  ProviderConfig,
  Session,
  Timer,
} from "@iop/wire";
import { ConfigRefreshRequestSchema, ProviderConfigSchema } from "@iop/wire";

import type { NodeRegistry, Owner } from "./node-registry.ts";
import type { ResourceLedger } from "./resource-ledger.ts";
import type { Hold } from "./resource.ts";

/** How long a Node may take to apply a changed configuration, in milliseconds: an adapter's start has 15 s of it, a health check 7 s. */
const REFRESH_MS = 30_000;
/** Longest reason of a Node that is kept, in characters. */
const MAX_REASON = 256;
const WAITING: Hold = { reason: "the Node has not accepted its changed configuration yet", pending: true };
const OVERDUE: Hold = {
  reason: `the Node has not answered to its changed configuration within ${REFRESH_MS} ms`,
  pending: false,
};

/**
 * What one Node has been told to run, what it answered, and what it is to be told next. At most one
 * configuration is under way; of those that come meanwhile the newest follows. A provider whose configuration is
 * not the one that the Node is known to run gets no new work.
 */
export class ConfigDelivery {
  readonly #owner: Owner;
  readonly #session: Session;
  readonly #registry: NodeRegistry;
  readonly #ledger: ResourceLedger;
  readonly #clock: Clock;
  #state: "pending" | "ready" | "serving" | "ended" = "pending";
  /** What is configured now. */
  #wanted: NodeConfigPayload;
  /** What the Node was given first or has answered to last. */
  #answered: NodeConfigPayload;
  /** Why it does not run a provider of that. */
  #refused: ReadonlyMap<string, string> = new Map();
  /** What it has not answered to. */
  #sent: NodeConfigPayload | undefined;
  #overdue = false;
  #deadline: Timer | undefined;

  /** `config` is what the Node was given with its registration. */
  constructor(options: {
    readonly owner: Owner;
    readonly session: Session;
    readonly registry: NodeRegistry;
    readonly ledger: ResourceLedger;
    readonly clock: Clock;
    readonly config: NodeConfigPayload;
  }) {
    this.#owner = options.owner;
    this.#session = options.session;
    this.#registry = options.registry;
    this.#ledger = options.ledger;
    this.#clock = options.clock;
    this.#wanted = options.config;
    this.#answered = options.config;
  }

  /** The Node is about to become ready. Answers which providers are not to get work, and why. */
  ready(): ReadonlyMap<string, Hold> {
    this.#state = "ready";
    this.#registry.configured(this.#owner, Number(this.#answered.revision));
    return this.#unaccepted();
  }

  /** The Node knows that it is ready: from here on changes are sent to it, and what has changed meanwhile at once. */
  serve(): void {
    if (this.#state !== "ready") return;
    this.#state = "serving";
    this.#push(false);
  }

  /** The configuration has changed, or been given again: what was refused or not answered is then tried again. */
  want(config: NodeConfigPayload): void {
    this.#wanted = config;
    if (this.#state === "pending" || this.#state === "ended") return;
    this.#fence();
    this.#push(true);
  }

  /** Takes in the Node's answer; ignored for a configuration that another one has followed. */
  answer({ revision, providers }: ConfigRefreshResponse): void {
    const sent = this.#sent;
    if (sent === undefined || revision !== sent.revision) return;
    this.#deadline?.cancel();
    this.#sent = undefined;
    this.#overdue = false;
    this.#answered = sent;
    const refused = new Map<string, string>();
    for (const { id } of sent.providers) {
      const said = providers.find((provider) => provider.id === id);
      if (said?.accepted === true) continue;
      const reason = said?.reason.slice(0, MAX_REASON) ?? "";
      refused.set(id, reason === "" ? "the Node has not accepted it" : reason);
    }
    this.#refused = refused;
    this.#registry.configured(this.#owner, Number(revision));
    this.#fence();
    const { node } = this.#owner;
    this.#ledger.forget(node, new Set(sent.providers.map(({ id }) => id)));
    if (refused.size === 0) this.#registry.emit({ node, type: "reconfigured" });
    else {
      const reason = [...refused].map(([id, why]) => `${id}: ${why}`).join("; ");
      this.#registry.emit({ node, type: "config_refused", code: "provider_refused", reason });
    }
    this.#push(false);
  }

  /** The session is over. */
  end(): void {
    this.#state = "ended";
    this.#deadline?.cancel();
  }

  #push(again: boolean): void {
    if (this.#state !== "serving" || this.#owner.draining) return;
    if (this.#sent !== undefined && !this.#overdue) return;
    const retries = again && (this.#overdue || this.#refused.size > 0);
    if (!retries && isSameNodeConfig(this.#wanted, this.#sent ?? this.#answered)) {
      if (this.#sent === undefined) this.#registry.configured(this.#owner, Number(this.#wanted.revision));
      return;
    }
    this.#sent = this.#wanted;
    this.#overdue = false;
    this.#deadline = this.#clock.setTimer(() => this.#late(), REFRESH_MS);
    // What was dispatched before is for the providers as they were.
    this.#session.sendBehindOpenings({
      case: "configRefreshRequest",
      value: create(ConfigRefreshRequestSchema, { config: this.#wanted }),
    });
  }

  #late(): void {
    this.#overdue = true;
    this.#fence();
    const { node, draining } = this.#owner;
    if (!draining)
      this.#registry.emit({ node, type: "config_refused", code: "no_answer", reason: OVERDUE.reason });
    this.#push(false);
  }

  /** Keeps work from the providers that the Node is not known to run as they are configured. */
  #fence(): void {
    const { node, generation } = this.#owner;
    const unaccepted = this.#unaccepted();
    for (const { id } of this.#wanted.providers) {
      const hold = unaccepted.get(id);
      if (hold === undefined) this.#ledger.accept(node, generation, id);
      else this.#ledger.hold(node, generation, id, hold);
    }
  }

  #unaccepted(): Map<string, Hold> {
    const unaccepted = new Map<string, Hold>();
    const answered = byId(this.#answered);
    const sent = this.#sent && byId(this.#sent);
    for (const provider of this.#wanted.providers) {
      const { id } = provider;
      const known = isSameProvider(provider, answered.get(id));
      // What is under way may be in force already, or never be.
      if (!known || (sent !== undefined && !isSameProvider(provider, sent.get(id))))
        unaccepted.set(id, this.#overdue ? OVERDUE : WAITING);
      else {
        const reason = this.#refused.get(id);
        if (reason !== undefined) unaccepted.set(id, { reason, pending: false });
      }
    }
    return unaccepted;
  }
}

/** Whether both have a Node run the same, whatever their revisions. */
export function isSameNodeConfig(a: NodeConfigPayload, b: NodeConfigPayload): boolean {
  if (a.providers.length !== b.providers.length) return false;
  const others = byId(b);
  return a.providers.every((provider) => isSameProvider(provider, others.get(provider.id)));
}

function isSameProvider(a: ProviderConfig, b: ProviderConfig | undefined): boolean {
  return b !== undefined && equals(ProviderConfigSchema, a, b);
}

function byId(config: NodeConfigPayload): ReadonlyMap<string, ProviderConfig> {
  return new Map(config.providers.map((provider) => [provider.id, provider]));
}
