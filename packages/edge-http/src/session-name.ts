import type { IncomingHttpHeaders } from "node:http";

/** Names that clients give the header with their session, the general ones first: any client, Codex, Claude Code. */
const SESSION_HEADERS = [
  "x-session-id",
  "session-id",
  "session_id",
  "x-claude-code-session-id",
  "x-claude-session-id",
] as const;
/** Longer ones are none, in characters; clients send UUIDs. */
const MAX_SESSION = 256;

/** The body's key that names what shares a prefix: https://platform.openai.com/docs/guides/prompt-caching */
export const PROMPT_CACHE_KEY = "prompt_cache_key";

/** What a request belongs to, so that the next of its kind finds the provider's cache warm; undefined where it does not say. */
export function sessionName(
  headers: IncomingHttpHeaders,
  promptCacheKey: string | undefined,
): string | undefined {
  for (const name of SESSION_HEADERS) {
    const value = headers[name];
    if (typeof value === "string" && isName(value)) return value;
  }
  return promptCacheKey !== undefined && isName(promptCacheKey) ? promptCacheKey : undefined;
}

function isName(value: string): boolean {
  return value !== "" && value.length <= MAX_SESSION;
}
