import type { Answer } from "./answer.ts";
import type { Behaviour } from "./behaviour.ts";
import { CREATED } from "./chat-completion.ts";

export const DONE_EVENT: Buffer = Buffer.from("data: [DONE]\n\n");

/** An error in the middle of a stream, in OpenAI's shape. */
export const ERROR_EVENT: Buffer = event({
  error: {
    message: "The model stopped because it was asked to.",
    type: "server_error",
    param: null,
    code: "internal_error",
  },
});

/** A stream as server-sent events, each encoded once. */
export interface ChatStream {
  /** Role, reasoning, content, tool calls. */
  readonly deltas: readonly Buffer[];
  /** Finish reason, usage where it was asked for, and `[DONE]`. */
  readonly end: readonly Buffer[];
}

export function chatStream(answer: Answer, behaviour: Behaviour, includeUsage: boolean): ChatStream {
  const chunk = (choices: readonly unknown[], usage?: Answer["usage"]): Buffer =>
    event({
      id: answer.id,
      object: "chat.completion.chunk",
      created: CREATED,
      model: answer.model,
      choices,
      ...(includeUsage ? { usage: usage ?? null } : {}),
    });
  const delta = (content: Readonly<Record<string, unknown>>, finish: string | null = null): Buffer =>
    chunk([{ index: 0, delta: content, logprobs: null, finish_reason: finish }]);

  const first = delta({ role: "assistant", content: "" });
  const end = [
    delta({}, answer.finishReason),
    ...(includeUsage ? [chunk([], answer.usage)] : []),
    ...(behaviour.done ? [DONE_EVENT] : []),
  ];
  if (behaviour.chunks !== undefined) {
    const overhead = delta({ content: "" }).length;
    const filled = delta({ content: "x".repeat(Math.max(0, behaviour.chunk_bytes - overhead)) });
    return {
      deltas: Array.from({ length: behaviour.chunks + 1 }, (_, i) => (i === 0 ? first : filled)),
      end,
    };
  }
  return {
    deltas: [
      first,
      ...answer.reasoning.map((token) => delta({ [behaviour.reasoning_field]: token })),
      ...answer.content.map((token) => delta({ content: token })),
      ...toolCallDeltas(answer).map((call) => delta({ tool_calls: [call] })),
    ],
    end,
  };
}

/** Each call's id and name first, with empty arguments; then the arguments in three pieces, the calls taking turns. */
function toolCallDeltas({ toolCalls }: Answer): unknown[] {
  const heads = toolCalls.map((call, index) => ({
    index,
    id: call.id,
    type: "function",
    function: { name: call.name, arguments: "" },
  }));
  const pieces = [0, 1, 2].flatMap((turn) =>
    toolCalls.map((call, index) => {
      const third = Math.ceil(call.arguments.length / 3);
      return { index, function: { arguments: call.arguments.slice(turn * third, (turn + 1) * third) } };
    }),
  );
  return [...heads, ...pieces.filter((piece) => piece.function.arguments !== "")];
}

function event(data: unknown): Buffer {
  return Buffer.from(`data: ${JSON.stringify(data)}\n\n`);
}
