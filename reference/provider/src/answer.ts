import type { Behaviour } from "./behaviour.ts";
import { type ChatRequest, textOf } from "./chat-request.ts";
import { numbersFrom, seedOf, tokensFrom } from "./deterministic.ts";
import { valueFor } from "./tool-arguments.ts";

export interface ToolCall {
  readonly id: string;
  readonly name: string;
  /** JSON text. */
  readonly arguments: string;
}

/** What the provider says to a request: the same for the same request, in every process. */
export interface Answer {
  readonly id: string;
  readonly model: string;
  readonly reasoning: readonly string[];
  readonly content: readonly string[];
  readonly toolCalls: readonly ToolCall[];
  readonly finishReason: "stop" | "length" | "tool_calls";
  readonly usage: {
    readonly prompt_tokens: number;
    readonly completion_tokens: number;
    readonly total_tokens: number;
    readonly prompt_tokens_details: { readonly cached_tokens: number };
    readonly completion_tokens_details: { readonly reasoning_tokens: number };
  };
}

export function answerTo(request: ChatRequest, behaviour: Behaviour): Answer {
  const question = request.messages.findLast(({ role }) => role === "user");
  const seed = seedOf(question === undefined ? "" : textOf(question));
  const number = numbersFrom(seed);

  const toolCalls = toolCallsFor(request, behaviour, seed);
  const wanted = behaviour.tokens ?? 12 + number(24);
  let content =
    toolCalls.length > 0
      ? []
      : behaviour.text === undefined
        ? tokensFrom(seed, wanted)
        : (behaviour.text.match(/\s*\S+\s*$|\s*\S+/g) ?? []);
  const thinks = request.reasoning_effort != null && request.reasoning_effort !== "none";
  const reasoning = tokensFrom(seed ^ 0x5bd1e995, behaviour.reasoning_tokens ?? (thinks ? 8 : 0));

  const limit = request.max_completion_tokens ?? request.max_tokens ?? Infinity;
  const isCut = content.length > limit;
  if (isCut) content = content.slice(0, limit);

  const prompt = Math.ceil(request.messages.reduce((sum, message) => sum + textOf(message).length, 0) / 4);
  const argumentTokens = toolCalls.reduce((sum, call) => sum + Math.ceil(call.arguments.length / 4), 0);
  const completion = content.length + reasoning.length + argumentTokens;
  return {
    id: `chatcmpl-${seed.toString(16).padStart(8, "0")}`,
    model: request.model,
    reasoning,
    content,
    toolCalls,
    finishReason: toolCalls.length > 0 ? "tool_calls" : isCut ? "length" : "stop",
    usage: {
      prompt_tokens: prompt,
      completion_tokens: completion,
      total_tokens: prompt + completion,
      prompt_tokens_details: { cached_tokens: Math.floor(prompt / 2) },
      completion_tokens_details: { reasoning_tokens: reasoning.length },
    },
  };
}

/** Calls a tool where tools are offered, not forbidden, and the last message does not bring a result. */
function toolCallsFor(request: ChatRequest, behaviour: Behaviour, seed: number): ToolCall[] {
  const { tool_choice: choice } = request;
  const named = typeof choice === "object" && choice !== null ? choice.function?.name : undefined;
  const tools = (request.tools ?? []).filter((tool) => named === undefined || tool.function.name === named);
  const answersResult = request.messages.at(-1)?.role === "tool";
  if (tools.length === 0 || choice === "none") return [];
  const count = behaviour.tool_calls ?? (answersResult ? 0 : 1);
  return Array.from({ length: count }, (_, index) => {
    const tool = tools[index % tools.length];
    const schema = tool?.function.parameters ?? { type: "object" };
    return {
      id: `call_${seed.toString(16).padStart(8, "0")}_${index}`,
      name: tool?.function.name ?? "",
      arguments: JSON.stringify(valueFor(schema, numbersFrom(seed + index))),
    };
  });
}
