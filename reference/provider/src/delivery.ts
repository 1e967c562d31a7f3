import { once } from "node:events";
import type { ServerResponse } from "node:http";
import { setImmediate as nextTurn, setTimeout as sleep } from "node:timers/promises";
import type { Behaviour } from "./behaviour.ts";

/** One response, ready to be written. It only depends on the request, so that it can be kept and used again. */
export interface Delivery {
  readonly status: number;
  readonly headers: ReadonlyArray<readonly [name: string, value: string]>;
  readonly pieces: readonly Uint8Array[];
  /** What goes wrong before the piece of that number; -1: instead of the head. */
  readonly failure?: { readonly kind: "cut" | "hang"; readonly before: number } | undefined;
  /** Time between two pieces, in milliseconds. */
  readonly intervalMs: number;
  /** Whether each piece must leave on its own rather than together with its neighbours. */
  readonly apart: boolean;
}

export interface DeliveryContext {
  /** Fires when the client is gone. */
  readonly signal: AbortSignal;
  /** Resolves when hanging responses may go on. */
  readonly released: () => Promise<void>;
  /** Told before we destroy the socket. */
  readonly onCut: () => void;
}

/**
 * Writes a response, no faster than the client takes it. Ends early where the client is gone.
 * @throws the signal's reason where the client goes away while it waits.
 */
export async function deliver(
  delivery: Delivery,
  response: ServerResponse,
  { signal, released, onCut }: DeliveryContext,
): Promise<void> {
  const { pieces, failure, intervalMs, apart } = delivery;
  const fail = async (kind: "cut" | "hang"): Promise<boolean> => {
    if (kind === "hang") {
      await released();
      return false;
    }
    onCut();
    response.socket?.destroy();
    return true;
  };
  if (failure?.before === -1 && (await fail(failure.kind))) return;
  if (signal.aborted) return;
  response.writeHead(delivery.status, delivery.headers.flat());
  if (failure !== undefined || intervalMs > 0) response.flushHeaders();

  const start = performance.now();
  for (let index = 0; index < pieces.length; index++) {
    const piece = pieces[index];
    if (piece === undefined) break;
    if (index === failure?.before) {
      await flushed(response);
      if (await fail(failure.kind)) return;
    }
    // Against the start, so that the pace holds whatever a timer is late.
    const early = intervalMs > 0 ? start + index * intervalMs - performance.now() : 0;
    if (early > 0) await sleep(early, undefined, { signal });
    else if (apart) await nextTurn();
    if (signal.aborted) return;
    if (!response.write(piece)) await once(response, "drain", { signal });
  }
  response.end();
}

/** Waits until what was written has been handed to the system, so that a cut comes after it. */
async function flushed(response: ServerResponse): Promise<void> {
  await nextTurn();
  const { socket } = response;
  if (socket !== null && socket.writableLength > 0 && !socket.destroyed) await once(socket, "drain");
}

/** Applies compression and splitting to what would be written piece by piece. */
export function shape(pieces: readonly Buffer[], behaviour: Behaviour, codec: Codec): Buffer[] {
  const encoded = behaviour.gzip ? pieces.map((piece) => codec.gzip(piece)) : [...pieces];
  if (behaviour.split === undefined) return encoded;
  const whole = Buffer.concat(encoded);
  const parts: Buffer[] = [];
  for (let at = 0; at < whole.length;) {
    const length = behaviour.split === "bytes" ? 1 : 1 + codec.number(64);
    parts.push(whole.subarray(at, at + length));
    at += length;
  }
  return parts;
}

export interface Codec {
  /** One gzip member: a series of them is one gzip stream that can be decoded member by member. */
  readonly gzip: (piece: Buffer) => Buffer;
  readonly number: (bound: number) => number;
}
