import { z } from "zod";

/** What a request may ask of the provider under `iop_test` in its JSON body, or as JSON in the header `x-test`; the body wins, key by key. */
export const behaviourSchema = z.strictObject({
  /** The answer, word for word; else it is derived from the last user message. */
  text: z.string().optional(),
  /** Length of the derived answer, in tokens (words). */
  tokens: z.int().min(0).max(100_000).optional(),
  /** Reasoning before the answer, in tokens. */
  reasoning_tokens: z.int().min(0).max(100_000).optional(),
  /** Servers differ in the name of the delta that carries it. */
  reasoning_field: z.enum(["reasoning_content", "reasoning"]).default("reasoning_content"),
  /** Calls to make of the offered tools, interleaved. */
  tool_calls: z.int().min(0).max(64).optional(),
  /** 0: as fast as the connection takes them. */
  tokens_per_second: z.number().min(0).max(1_000_000).optional(),
  /** Answer with this status and an error body. */
  status: z.int().min(400).max(599).optional(),
  /** Text of that error. */
  error_message: z.string().optional(),
  /** Response headers on top, in order, repeats kept. */
  headers: z.array(z.tuple([z.string(), z.string()])).default([]),
  /** `error_event`: an error in the stream. `cut`: destroy the socket. `hang`: nothing until `POST /_test/release`. */
  fail: z.enum(["error_event", "cut", "hang"]).optional(),
  /** Where it fails: instead of the response's head, after the head, or halfway through the body. */
  at: z.enum(["headers", "first_token", "middle"]).default("middle"),
  /** Compress the response, whatever the client accepts; each event can be decoded as it arrives. */
  gzip: z.boolean().default(false),
  /** Cut the bytes elsewhere than between events: at random places, or after each byte. */
  split: z.enum(["random", "bytes"]).optional(),
  /** Chooses the random places. */
  seed: z.int().min(0).default(1),
  /** Pause between writes, in milliseconds. */
  drip_ms: z.number().min(0).max(60_000).default(0),
  /** Instead of an answer, that many content events … */
  chunks: z.int().min(0).max(10_000_000).optional(),
  /** … of that many bytes each, at least what an empty one takes. */
  chunk_bytes: z.int().min(1).max(16_777_216).default(256),
  /** Fill a response that is not streamed up to that length, in bytes. */
  body_bytes: z
    .int()
    .min(0)
    .max(256 * 1024 * 1024)
    .optional(),
  /** Answer with what was received: method, path, headers, and length and SHA-256 of the body. */
  echo: z.boolean().default(false),
  /** Whether a stream ends with `data: [DONE]`. */
  done: z.boolean().default(true),
});

export type Behaviour = z.output<typeof behaviourSchema>;

/** The header that carries a behaviour where the body cannot. */
export const BEHAVIOUR_HEADER = "x-test";
