import type { ProviderTunnelFrame } from "./gen/iop/runtime_pb.ts";
import { ProviderTunnelFrame_Kind as Kind } from "./gen/iop/runtime_pb.ts";

/** Whether a frame ends its tunnel. */
export function isTerminalKind(kind: Kind): boolean {
  return kind === Kind.END || kind === Kind.ERROR;
}

/**
 * The order of one tunnel's frames (spec rule 5): RESPONSE_START once and first, BODY any number, then
 * exactly one END or ERROR; sequence from 1 without gaps. USAGE may stand anywhere before the terminal;
 * an ERROR may come without a start.
 */
export class TunnelOrder {
  #sequence = 0;
  #started = false;
  #ended = false;

  /** Undefined where `frame` may come next, else what is wrong. */
  violation(frame: ProviderTunnelFrame): string | undefined {
    if (this.#ended) return "frame after the terminal";
    if (frame.sequence !== this.#sequence + 1) return `sequence ${frame.sequence} after ${this.#sequence}`;
    this.#sequence = frame.sequence;
    switch (frame.kind) {
      case Kind.RESPONSE_START:
        if (this.#started) return "second RESPONSE_START";
        this.#started = true;
        return undefined;
      case Kind.BODY:
        return this.#started ? undefined : "BODY before RESPONSE_START";
      case Kind.USAGE:
        return undefined;
      case Kind.END:
        if (!this.#started) return "END before RESPONSE_START";
        this.#ended = true;
        return undefined;
      case Kind.ERROR:
        this.#ended = true;
        return undefined;
      default:
        return `frame of unknown kind ${frame.kind}`;
    }
  }
}
