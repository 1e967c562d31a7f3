import type { QueueWait } from "./edge-error.ts";
import type { EdgeSnapshot } from "./snapshot.ts";

/** HTTP headers in order, repeats kept. */
export type HeaderList = ReadonlyArray<readonly [name: string, value: string]>;

/** Token counts as the provider reported them; what it did not report is absent. Input includes cached, output includes reasoning. */
export interface Usage {
  readonly inputTokens?: number;
  readonly outputTokens?: number;
  readonly reasoningTokens?: number;
  readonly cachedInputTokens?: number;
  readonly partial?: boolean;
}

/** Who really served a request. Edge-local: nothing of it is on the wire (spec F12). */
export interface RunDispatch {
  readonly nodeId: string;
  readonly providerId: string;
  /** Model name that the provider serves. */
  readonly target: string;
  /** The effective policy of the provider's configuration. */
  readonly usageAttribution: string;
}

/**
 * One piece of a tunnelled response, in the order of spec rule 5: `start` once and first, `body` any
 * number, then exactly one of `end` or `error`. `usage` is an observation, never part of the body.
 */
export type TunnelFrame =
  | { readonly kind: "start"; readonly status: number; readonly headers: HeaderList }
  | { readonly kind: "body"; readonly body: Uint8Array }
  | { readonly kind: "usage"; readonly usage: Usage }
  | { readonly kind: "end" }
  /** `code` is the Node's or the Edge's; nothing follows. */
  | { readonly kind: "error"; readonly code: string; readonly message: string };

/**
 * A tunnelled response. Iterate it once. Asking for the next frame says that the one before has been
 * taken: that is what returns its flow-control credit, so a consumer that stops asking stalls only
 * its own stream. Returning early (`break`) cancels the work at the provider. Never throws: whatever
 * happens, the last frame is the one `end` or `error`.
 */
export interface ProviderTunnel extends AsyncIterable<TunnelFrame> {
  readonly dispatch: RunDispatch;
  /** How the request waited. */
  readonly queue: QueueWait;
  /** Stops the work at the provider; harmless when over. */
  cancel(reason: string): void;
}

/** A request for a raw exchange with a provider of `model`. */
export interface TunnelSubmission {
  /** Names the request in events and in the Node's logs; unique. Default: drawn. */
  readonly requestId?: string;
  /** Key in the model catalog. */
  readonly model: string;
  /** `chat_completions`, `models`, …: the profile has its path. */
  readonly operation: string;
  /** Default `POST`. */
  readonly method?: string;
  /** End-to-end headers for the provider, without the caller's credentials. */
  readonly headers?: HeaderList;
  /** The body for the selected served target, as chunks; called for each provider that is tried. */
  readonly buildBody: (target: string) => readonly Uint8Array[];
  /** Who asks; for attribution. */
  readonly principal?: string;
  /** Higher goes first among those that wait. Default 0. */
  readonly priority?: number;
  /** Tokens of the input, as far as known; what makes a request long for a provider that bounds these. Default 0. */
  readonly inputTokens?: number;
  /** Names what this request belongs to: of the principal's sessions, the same provider serves the next, if it has room. */
  readonly session?: string | undefined;
  /** Withdraws the request at any stage. */
  readonly signal?: AbortSignal | undefined;
}

/** A model that callers can name. */
export interface ModelInfo {
  readonly key: string;
  readonly candidates: number;
  /** Candidates that can be dispatched to now. */
  readonly live: number;
}

/** What the HTTP surfaces need of an Edge. */
export interface EdgeService {
  /**
   * Waits for a provider, opens the tunnel and resolves when its first frame is here. A provider that could not
   * be reached or refused the work, so that nothing of it ran, is not the answer: the request then keeps its
   * place in the order and waits for the next. What may have run is never sent again.
   * @throws EdgeError `unknown_model`, `unsupported_operation`, `unavailable` (no live candidate), `queue_full`,
   *   `queue_timeout`, `invalid_request`, `body_too_large`, `draining`, `cancelled`.
   */
  submitProviderTunnel(submission: TunnelSubmission): Promise<ProviderTunnel>;
  /** All configured models, in the order of the configuration. */
  models(): readonly ModelInfo[];
  snapshot(): EdgeSnapshot;
}
