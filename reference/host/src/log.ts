import { type DestinationStream, type Logger, destination, pino } from "pino";

/** A structured log: one JSON object a line. */
export type Log = Logger;

/**
 * Field names that are masked wherever they stand, up to two levels deep. Nothing should log them in the
 * first place; this is the net below.
 */
const SECRET_FIELDS = [
  "token",
  "key",
  "apiKey",
  "api_key",
  "secret",
  "password",
  "authorization",
  "Authorization",
  "x-api-key",
  "cookie",
  "body",
  "prompt",
  "completion",
  "messages",
  "content",
];

/** Makes a log that writes to stderr, or to `stream`; `name` tells the processes apart. */
export function createLog(name: string, stream?: DestinationStream): Log {
  return pino(
    {
      base: { name },
      timestamp: () => `,"time":"${new Date().toISOString()}"`,
      formatters: { level: (label) => ({ level: label }) },
      redact: {
        paths: SECRET_FIELDS.flatMap((field) => {
          const quoted = `["${field}"]`;
          return [quoted, `*${quoted}`, `*.*${quoted}`];
        }),
        censor: "[secret]",
      },
      serializers: { err: describeError },
    },
    // Synchronous, so that the last line before an exit is never lost.
    stream ?? destination({ fd: 2, sync: true }),
  );
}

/** Only what an error is known to hold: other properties of foreign errors may carry headers or bodies. */
function describeError(error: unknown): unknown {
  if (!(error instanceof Error)) return { message: String(error) };
  return {
    type: error.name,
    ...("code" in error && typeof error.code === "string" ? { code: error.code } : {}),
    message: error.message,
    stack: error.stack,
    ...(error.cause === undefined ? {} : { cause: describeError(error.cause) }),
  };
}
