import { gzipSync } from "node:zlib";
import { z } from "zod";
import { answerTo } from "./answer.ts";
import { type Behaviour, behaviourSchema } from "./behaviour.ts";
import { chatCompletion } from "./chat-completion.ts";
import { type ChatRequest, chatRequestSchema } from "./chat-request.ts";
import { DONE_EVENT, ERROR_EVENT, chatStream } from "./chat-stream.ts";
import { type Delivery, shape } from "./delivery.ts";
import { numbersFrom } from "./deterministic.ts";
import { OpenAiError } from "./openai-error.ts";

const partialBehaviour = behaviourSchema.partial();

export interface PlanOptions {
  readonly models: readonly string[];
  /** Pace of requests that do not ask for one; 0: as fast as possible. */
  readonly tokensPerSecond: number;
}

/** The response to a Chat Completions request. @throws OpenAiError */
export function planChat(body: string, header: string | undefined, options: PlanOptions): Delivery {
  const json = parseJson(body);
  const parsed = chatRequestSchema.safeParse(json);
  if (!parsed.success) throw invalid(parsed.error);
  const request = parsed.data;
  const behaviour = behaviourSchema.parse({ ...parseBehaviour(header), ...rawBehaviour(json) });
  if (!options.models.includes(request.model))
    throw new OpenAiError(
      404,
      `The model ${JSON.stringify(request.model)} does not exist.`,
      "model_not_found",
    );
  if (behaviour.status !== undefined) return planError(behaviour.status, behaviour);
  const streams = request.stream === true;
  if (behaviour.fail === "error_event" && !streams) return planError(500, behaviour);

  const pieces = shape(piecesOf(request, behaviour), behaviour, {
    gzip: (piece) => gzipSync(piece),
    number: numbersFrom(behaviour.seed),
  });
  const length = pieces.reduce((sum, piece) => sum + piece.length, 0);
  const pace = behaviour.tokens_per_second ?? options.tokensPerSecond;
  const isPaced = streams && pace > 0 && behaviour.split === undefined && behaviour.chunks === undefined;
  return {
    status: 200,
    headers: [
      ["content-type", streams ? "text/event-stream; charset=utf-8" : "application/json"],
      ["cache-control", "no-cache"],
      ...(streams ? [] : [["content-length", String(length)] as const]),
      ...(behaviour.gzip ? [["content-encoding", "gzip"] as const] : []),
      ...behaviour.headers,
    ],
    pieces,
    failure: failureOf(behaviour, pieces.length),
    intervalMs: behaviour.drip_ms > 0 ? behaviour.drip_ms : isPaced ? 1000 / pace : 0,
    apart: behaviour.split !== undefined,
  };
}

/** The response to any other request that the provider knows, as JSON. */
export function planJson(status: number, body: string, behaviour?: Pick<Behaviour, "headers">): Delivery {
  const bytes = Buffer.from(body);
  return {
    status,
    headers: [
      ["content-type", "application/json"],
      ["content-length", String(bytes.length)],
      ...(behaviour?.headers ?? []),
    ],
    pieces: [bytes],
    intervalMs: 0,
    apart: false,
  };
}

/** The behaviour that the header asks for. @throws OpenAiError */
export function parseBehaviour(header: string | undefined): z.output<typeof partialBehaviour> {
  if (header === undefined) return {};
  const parsed = partialBehaviour.safeParse(parseJson(header));
  if (!parsed.success) throw invalid(parsed.error);
  return parsed.data;
}

/** As the client wrote it: without the defaults, which would cover the header's. */
function rawBehaviour(json: unknown): object {
  const parsed = z.looseObject({ iop_test: z.looseObject({}).optional() }).safeParse(json);
  return parsed.data?.iop_test ?? {};
}

function piecesOf(request: ChatRequest, behaviour: Behaviour): Buffer[] {
  const answer = answerTo(request, behaviour);
  if (request.stream !== true) {
    const whole = Buffer.from(chatCompletion(answer, behaviour));
    const half = Math.ceil(whole.length / 2);
    // Two pieces, so that it can fail halfway; compressed it is one, as a server would.
    return behaviour.gzip ? [whole] : [whole.subarray(0, half), whole.subarray(half)];
  }
  const { deltas, end } = chatStream(answer, behaviour, request.stream_options?.include_usage === true);
  if (behaviour.fail !== "error_event") return [...deltas, ...end];
  const before = behaviour.at === "middle" ? Math.ceil(deltas.length / 2) : 0;
  return [...deltas.slice(0, before), ERROR_EVENT, ...(behaviour.done ? [DONE_EVENT] : [])];
}

function failureOf({ fail, at }: Behaviour, pieces: number): Delivery["failure"] {
  if (fail !== "cut" && fail !== "hang") return undefined;
  const before = { headers: -1, first_token: 0, middle: Math.floor(pieces / 2) }[at];
  return { kind: fail, before };
}

function planError(status: number, behaviour: Behaviour): Delivery {
  const error = new OpenAiError(status, behaviour.error_message ?? "The request was to fail.", "test_error");
  return planJson(status, error.body(), behaviour);
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new OpenAiError(400, "We could not parse the JSON body of your request.");
  }
}

function invalid(error: z.ZodError): OpenAiError {
  const issue = error.issues[0];
  return new OpenAiError(400, `Invalid request: ${issue?.path.join(".") ?? ""}: ${issue?.message ?? ""}`);
}
