/** An error as an OpenAI-compatible server answers it. */
export class OpenAiError extends Error {
  override readonly name = "OpenAiError";
  readonly status: number;
  readonly code: string | null;

  constructor(status: number, message: string, code: string | null = null) {
    super(message);
    this.status = status;
    this.code = code;
  }

  body(): string {
    const type =
      this.status === 429 ? "rate_limit_error" : this.status < 500 ? "invalid_request_error" : "server_error";
    return JSON.stringify({ error: { message: this.message, type, param: null, code: this.code } });
  }
}
