/**
 * Exit codes of the hosts.
 *
 * - `ok`: local shutdown, or `--check` found nothing wrong.
 * - `failed`: anything else that ended the process, such as an address in use.
 * - `usage`: bad command line or configuration file.
 * - `refused`: the Edge refused this Node for good.
 * - `exhausted`: `reconnect.max_attempts` failures in a row.
 */
export const ExitCode = { ok: 0, failed: 1, usage: 2, refused: 3, exhausted: 4 } as const;

export type ExitCode = (typeof ExitCode)[keyof typeof ExitCode];
