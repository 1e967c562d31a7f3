/** A part of a message that a caller sends. */
export type ContentPart =
  | { readonly type: "text"; readonly text: string }
  /** `data` is base64; `mediaType` for example `image/png`. */
  | { readonly type: "image"; readonly mediaType: string; readonly data: string }
  | { readonly type: "image_url"; readonly url: string }
  /** `input` is the JSON text of the arguments. */
  | { readonly type: "tool_use"; readonly id: string; readonly name: string; readonly input: string }
  | {
      readonly type: "tool_result";
      readonly toolUseId: string;
      readonly content: string;
      readonly isError?: boolean;
    };

export interface Message {
  readonly role: "user" | "assistant";
  readonly content: readonly ContentPart[];
}

/** A tool that the model may call. `inputSchema` is JSON Schema text. */
export interface ToolDefinition {
  readonly name: string;
  readonly description?: string;
  readonly inputSchema: string;
}

/** Sampling wishes; a provider uses those that it knows. */
export interface Sampling {
  readonly temperature?: number;
  readonly topP?: number;
  readonly maxOutputTokens?: number;
  readonly stop?: readonly string[];
  readonly seed?: number;
}

/** One turn to run. */
export interface ExecutionSpec {
  readonly runId: string;
  /** Model or agent name that the provider serves. */
  readonly target: string;
  readonly system?: string;
  readonly messages: readonly Message[];
  readonly tools?: readonly ToolDefinition[];
  readonly sampling?: Sampling;
  /** Logical session to continue. */
  readonly sessionId?: string;
  /** Goes on when the Edge is lost. */
  readonly background?: boolean;
  /** Longest duration of the run, in milliseconds; 0: none. */
  readonly timeoutMs: number;
}
