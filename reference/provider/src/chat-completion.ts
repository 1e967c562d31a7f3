import type { Answer } from "./answer.ts";
import type { Behaviour } from "./behaviour.ts";

/** Fixed, so that equal requests get equal bytes: 2023-11-14T22:13:20Z. */
export const CREATED = 1_700_000_000;

/** A response that is not streamed, as JSON text; blanks before its end fill it up to `body_bytes`. */
export function chatCompletion(answer: Answer, behaviour: Behaviour): string {
  const message = {
    role: "assistant",
    content: answer.toolCalls.length > 0 ? null : answer.content.join(""),
    ...(answer.reasoning.length === 0 ? {} : { [behaviour.reasoning_field]: answer.reasoning.join("") }),
    ...(answer.toolCalls.length === 0
      ? {}
      : {
          tool_calls: answer.toolCalls.map((call) => ({
            id: call.id,
            type: "function",
            function: { name: call.name, arguments: call.arguments },
          })),
        }),
  };
  const text = JSON.stringify({
    id: answer.id,
    object: "chat.completion",
    created: CREATED,
    model: answer.model,
    choices: [{ index: 0, message, logprobs: null, finish_reason: answer.finishReason }],
    usage: answer.usage,
  });
  const missing = (behaviour.body_bytes ?? 0) - Buffer.byteLength(text);
  return missing > 0 ? `${text.slice(0, -1)}${" ".repeat(missing)}}` : text;
}
