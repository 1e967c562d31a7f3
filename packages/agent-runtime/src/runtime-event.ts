import type { RuntimeErrorCode } from "./runtime-error.ts";
import type { Usage } from "./usage.ts";

/** Why a run completed. */
export type FinishReason = "stop" | "length" | "tool_calls" | "content_filter";

/**
 * What a run says as it goes. `start` is first; exactly one of `complete`, `error`, `cancelled` is
 * last. Spec F6; `tool_call` is ours, without it a run provider cannot serve tools.
 */
export type RuntimeEvent =
  | { readonly type: "start" }
  | { readonly type: "delta"; readonly text: string }
  | { readonly type: "reasoning_delta"; readonly text: string }
  /** A piece of a call: `index` names the call, `id` and `name` come with its first piece. */
  | {
      readonly type: "tool_call";
      readonly index: number;
      readonly id?: string;
      readonly name?: string;
      readonly argumentsDelta: string;
    }
  | { readonly type: "complete"; readonly finishReason: FinishReason; readonly usage?: Usage }
  | {
      readonly type: "error";
      readonly code: RuntimeErrorCode;
      readonly message: string;
      readonly usage?: Usage;
    }
  | { readonly type: "cancelled"; readonly usage?: Usage };
