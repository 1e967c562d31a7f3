/**
 * Token counts exactly as the provider reported them. A count that it did not report is absent:
 * nothing here is ever estimated, and 0 means that the provider said 0.
 *
 * Counts follow the OpenAI convention: `inputTokens` includes `cachedInputTokens`, `outputTokens`
 * includes `reasoningTokens`.
 */
export interface Usage {
  readonly inputTokens?: number;
  readonly outputTokens?: number;
  readonly reasoningTokens?: number;
  readonly cachedInputTokens?: number;
  /** The stream ended before the provider's final figures; the counts are its latest. */
  readonly partial?: boolean;
}
