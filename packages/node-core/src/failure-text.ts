import { RuntimeError } from "@iop/agent-runtime";
import { WireError } from "@iop/wire";

/** A failure in words that may leave this process: an error of no known class could quote a prompt. */
export function describeFailure(error: unknown): string {
  if (RuntimeError.is(error) || WireError.is(error)) return error.message;
  return `the adapter failed (${error instanceof Error ? error.name : typeof error})`;
}
