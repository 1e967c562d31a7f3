import { EventEmitter } from "eventemitter3";

import type { RunDispatch, Usage } from "./edge-service.ts";

/** A node's coming and going. */
export interface NodeEvent {
  /** The node's name; of a `refused` with an unknown token the name that it claimed, made printable. */
  readonly node: string;
  /**
   * `connected`: ready for work. `disconnected`: was ready and is gone. `refused`: did not become ready.
   * `reconfigured`: runs its changed configuration. `config_refused`: does not, or not all of it.
   */
  readonly type: "connected" | "disconnected" | "refused" | "reconfigured" | "config_refused";
  /**
   * Why: of `refused` a register code (`unknown_token`, `duplicate_node`, `config_failed`, `edge_draining`,
   * `unsupported_version`, `name_mismatch`), `invalid_limits` or `not_ready`; of `disconnected` a
   * WireErrorCode or `superseded`: the same process has connected again, or another one has taken over from one
   * that did not answer; of `config_refused` `provider_refused` or `no_answer`.
   */
  readonly code?: string;
  /** The same for people. */
  readonly reason?: string;
  /** ISO 8601. */
  readonly at: string;
}

/** A request that is over. Holds nothing of its content. */
export interface RunOutcomeEvent {
  /** As the Node's logs name it. */
  readonly requestId: string;
  readonly model: string;
  readonly operation: string;
  readonly principal?: string;
  readonly dispatch: RunDispatch;
  /** How long the request waited for a provider, in milliseconds. */
  readonly queuedMs: number;
  /** Providers that were asked; of all but the last nothing ran. */
  readonly attempts: number;
  /** `cancelled`: withdrawn, or its consumer stopped. */
  readonly outcome: "completed" | "error" | "cancelled";
  /** Of an `error`: the code of the tunnel's last frame. */
  readonly code?: string;
  /** HTTP status of the provider, where it answered. */
  readonly status?: number;
  /** The latest that the provider reported. */
  readonly usage?: Usage;
  /** From the submission until the first bytes of the response's body were handed over; absent where none came. */
  readonly firstByteMs?: number;
  /** From the submission until the provider's work had stopped. */
  readonly durationMs: number;
  /** ISO 8601. */
  readonly at: string;
}

/** Event name to what its subscribers are given. */
export interface EdgeEventMap {
  node: NodeEvent;
  run: RunOutcomeEvent;
}

/** What happens at an Edge, for observation. Subscribers are called in turn, at once; one that throws is ignored. */
export interface EdgeEvents {
  on<K extends keyof EdgeEventMap>(event: K, listener: (payload: EdgeEventMap[K]) => void): this;
  once<K extends keyof EdgeEventMap>(event: K, listener: (payload: EdgeEventMap[K]) => void): this;
  off<K extends keyof EdgeEventMap>(event: K, listener: (payload: EdgeEventMap[K]) => void): this;
}

type Listener<K extends keyof EdgeEventMap> = (payload: EdgeEventMap[K]) => void;

/** Fans events out (spec F23). Nothing that must happen depends on it. */
export class EventBus implements EdgeEvents {
  readonly #emitter = new EventEmitter();
  readonly #guards: { readonly [K in keyof EdgeEventMap]: WeakMap<Listener<K>, Listener<K>> } = {
    node: new WeakMap(),
    run: new WeakMap(),
  };

  on<K extends keyof EdgeEventMap>(event: K, listener: Listener<K>): this {
    this.#emitter.on(event, this.#guard(event, listener));
    return this;
  }

  once<K extends keyof EdgeEventMap>(event: K, listener: Listener<K>): this {
    this.#emitter.once(event, this.#guard(event, listener));
    return this;
  }

  off<K extends keyof EdgeEventMap>(event: K, listener: Listener<K>): this {
    this.#emitter.off(event, this.#guard(event, listener));
    return this;
  }

  /** Tells the subscribers; never throws. */
  emit<K extends keyof EdgeEventMap>(event: K, payload: EdgeEventMap[K]): void {
    this.#emitter.emit(event, payload);
  }

  // The emitter stops at a listener that throws; the one guard of each listener keeps `off` working.
  #guard<K extends keyof EdgeEventMap>(event: K, listener: Listener<K>): Listener<K> {
    const guards: WeakMap<Listener<K>, Listener<K>> = this.#guards[event];
    const known = guards.get(listener);
    if (known !== undefined) return known;
    const guard: Listener<K> = (payload) => {
      try {
        const result: unknown = listener(payload);
        if (result instanceof Promise) result.catch(() => {});
      } catch {
        // A fault of the subscriber's.
      }
    };
    guards.set(listener, guard);
    return guard;
  }
}
