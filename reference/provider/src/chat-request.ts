import { z } from "zod";
import { behaviourSchema } from "./behaviour.ts";

const part = z.looseObject({ type: z.string(), text: z.string().optional() });

/** The parts of a Chat Completions request that an answer depends on. */
export const chatRequestSchema = z.looseObject({
  model: z.string(),
  messages: z
    .array(
      z.looseObject({
        role: z.string(),
        content: z.union([z.string(), z.array(part)]).nullish(),
      }),
    )
    .min(1),
  stream: z.boolean().nullish(),
  stream_options: z.looseObject({ include_usage: z.boolean().nullish() }).nullish(),
  max_tokens: z.int().min(1).nullish(),
  max_completion_tokens: z.int().min(1).nullish(),
  n: z.literal(1).nullish(),
  reasoning_effort: z.string().nullish(),
  tools: z
    .array(
      z.looseObject({
        type: z.literal("function"),
        function: z.looseObject({
          name: z.string(),
          parameters: z.record(z.string(), z.unknown()).nullish(),
        }),
      }),
    )
    .nullish(),
  tool_choice: z
    .union([z.string(), z.looseObject({ function: z.looseObject({ name: z.string() }).optional() })])
    .nullish(),
  iop_test: behaviourSchema.partial().optional(),
});

export type ChatRequest = z.output<typeof chatRequestSchema>;

/** All text of a message. */
export function textOf(message: ChatRequest["messages"][number]): string {
  const { content } = message;
  if (typeof content === "string") return content;
  return (content ?? []).map((item) => item.text ?? "").join("");
}
