import { ExitCode } from "@iop/reference-host";
import { EventSourceParserStream } from "eventsource-parser/stream";
import { type EdgeStatus, edgeStatusSchema } from "./edge-status.ts";

/** How long the Edge may take to answer, in milliseconds. */
const ANSWER_MS = 5_000;

/** The Edge could not be asked; `exitCode` is what the command then exits with. */
export class AdminError extends Error {
  override readonly name = "AdminError";
  readonly exitCode: ExitCode;

  constructor(message: string, exitCode: ExitCode) {
    super(message);
    this.exitCode = exitCode;
  }
}

export interface AdminClientOptions {
  /** Base of the admin address, such as `http://127.0.0.1:8081`. */
  readonly url: URL;
  readonly key?: string | undefined;
}

/** Reads an Edge's admin API. */
export class AdminClient {
  readonly #url: URL;
  readonly #headers: Readonly<Record<string, string>>;

  constructor({ url, key }: AdminClientOptions) {
    this.#url = url;
    this.#headers = key === undefined ? {} : { authorization: `Bearer ${key}` };
  }

  /** @throws AdminError */
  async status(signal?: AbortSignal): Promise<EdgeStatus> {
    const timeout = AbortSignal.timeout(ANSWER_MS);
    const response = await this.#get(
      "api/snapshot",
      signal === undefined ? timeout : AbortSignal.any([timeout, signal]),
    );
    const body: unknown = await response.json().catch(() => undefined);
    const parsed = edgeStatusSchema.safeParse(body);
    if (parsed.success) return parsed.data;
    throw new AdminError(`${this.#url.origin} is not the admin address of an IOP Edge`, ExitCode.failed);
  }

  /**
   * Calls `changed` for each event, until the stream ends or `signal` fires.
   * @throws AdminError where it does not begin
   */
  async follow(changed: () => void, signal: AbortSignal): Promise<void> {
    const response = await this.#get("api/events", signal);
    if (response.body === null) return;
    const events = response.body
      .pipeThrough(new TextDecoderStream())
      .pipeThrough(new EventSourceParserStream());
    try {
      for await (const _ of events) changed();
    } catch {
      // The connection is lost: an end like any other.
    }
  }

  async #get(path: string, signal: AbortSignal): Promise<Response> {
    let response: Response;
    try {
      // A redirect would carry the key elsewhere.
      response = await fetch(new URL(path, this.#url), { headers: this.#headers, signal, redirect: "error" });
    } catch (error) {
      throw new AdminError(
        `the Edge at ${this.#url.origin} does not answer: ${reasonOf(error)}`,
        ExitCode.failed,
      );
    }
    if (response.ok) return response;
    await response.body?.cancel();
    if (response.status === 401)
      throw new AdminError(
        `the Edge at ${this.#url.origin} asks for its admin key; name the variable that holds it with --key-env`,
        ExitCode.refused,
      );
    throw new AdminError(`${this.#url.origin} answers with status ${response.status}`, ExitCode.failed);
  }
}

function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  if (error.name === "TimeoutError") return `nothing within ${ANSWER_MS / 1000} s`;
  const { cause } = error;
  if (!(cause instanceof Error)) return error.message;
  return "code" in cause && typeof cause.code === "string" ? cause.code : cause.message;
}
