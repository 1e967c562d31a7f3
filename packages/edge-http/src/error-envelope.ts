import type { HttpSurfaceError } from "./http-surface-error.ts";

/** OpenAI's error object as JSON text: https://platform.openai.com/docs/guides/error-codes */
export function errorEnvelope(error: HttpSurfaceError): string {
  return JSON.stringify({
    error: {
      message: error.message,
      type: errorType(error.status),
      param: error.param ?? null,
      code: error.code,
    },
  });
}

function errorType(status: number): string {
  if (status === 429) return "rate_limit_error";
  return status >= 500 ? "server_error" : "invalid_request_error";
}
