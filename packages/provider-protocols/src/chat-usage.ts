import type { Usage } from "@iop/agent-runtime";

/** What one Chat Completions object (a whole response, or one chunk of a stream) says about tokens. */
export interface ChatUsageReport {
  /** Absent where the object reports no count. */
  readonly usage: Usage | undefined;
  /** llama.cpp's `timings.cache_n`: stands in for a cached count that `usage` does not have. */
  readonly timingsCached: number | undefined;
}

/**
 * Reads the counts of a parsed Chat Completions object, wherever servers put them: `usage` (OpenAI, vLLM,
 * llama.cpp, Ollama, OpenRouter, DeepSeek), `x_groq.usage` (Groq), `choices[0].usage` (Moonshot). Takes only
 * non-negative integers; whatever else is there counts as not reported.
 */
export function readChatUsage(body: unknown): ChatUsageReport {
  const choices = member(body, "choices");
  const firstChoice: unknown = Array.isArray(choices) ? choices[0] : undefined;
  return {
    usage:
      readCounts(member(body, "usage")) ??
      readCounts(member(member(body, "x_groq"), "usage")) ??
      readCounts(member(firstChoice, "usage")),
    timingsCached: count(member(member(body, "timings"), "cache_n")),
  };
}

function readCounts(usage: unknown): Usage | undefined {
  const input = count(member(usage, "prompt_tokens"));
  const output = count(member(usage, "completion_tokens"));
  const reasoning = count(member(member(usage, "completion_tokens_details"), "reasoning_tokens"));
  const cached =
    count(member(member(usage, "prompt_tokens_details"), "cached_tokens")) ??
    count(member(usage, "prompt_cache_hit_tokens"));
  if (input === undefined && output === undefined && reasoning === undefined && cached === undefined) {
    return undefined;
  }
  return {
    ...(input !== undefined && { inputTokens: input }),
    ...(output !== undefined && { outputTokens: output }),
    ...(reasoning !== undefined && { reasoningTokens: reasoning }),
    ...(cached !== undefined && { cachedInputTokens: cached }),
  };
}

function count(value: unknown): number | undefined {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0 ? value : undefined;
}

function member(value: unknown, key: string): unknown {
  return isRecord(value) && Object.hasOwn(value, key) ? value[key] : undefined;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
