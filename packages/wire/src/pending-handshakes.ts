import type { Socket } from "node:net";

import { remoteOf } from "./socket-connection.ts";

/** A connection of a listening end whose handshake came to nothing. */
export interface HandshakeFailure {
  /** The other end: `127.0.0.1:50412`. */
  readonly remote: string;
  /** For logs. Holds nothing that the peer sent. */
  readonly reason: string;
}

export interface PendingHandshakesOptions {
  /** How long a handshake may take, in milliseconds. */
  readonly deadlineMs: number;
  /** How many may be under way. */
  readonly max: number;
  /** Called once for each that fails, when its connection is gone. */
  readonly onError: (failure: HandshakeFailure) => void;
}

interface Pending {
  readonly socket: Socket;
  /** Both ends' addresses. */
  readonly ends: string;
  readonly remote: string;
  readonly timer: NodeJS.Timeout;
  /** Why it fails, once that is known. */
  reason: string | undefined;
}

/**
 * Connections whose handshake is under way; each has a deadline, all together a bound. Over the bound the
 * oldest gives way: an honest handshake is over in moments, so that peers who hold theirs open do not keep
 * others out.
 *
 * `node:tls` makes a socket of its own over the accepted one; both ends' addresses tell which belong together.
 */
export class PendingHandshakes {
  readonly #options: PendingHandshakesOptions;
  /** By `ends`, oldest first. */
  readonly #pending = new Map<string, Pending>();

  constructor(options: PendingHandshakesOptions) {
    this.#options = options;
  }

  /** Takes note of an accepted connection, before its handshake. */
  begin(socket: Socket): void {
    const { deadlineMs, max, onError } = this.#options;
    const ends = endsOf(socket);
    if (ends === undefined) {
      // It has gone already.
      socket.destroy();
      return;
    }
    const [oldest] = this.#pending.values();
    if (oldest !== undefined && this.#pending.size >= max)
      this.#drop(oldest, `gave way: ${max} newer handshakes are under way`);
    const pending: Pending = {
      socket,
      ends,
      remote: remoteOf(socket),
      timer: setTimeout(() => this.#drop(pending, `no handshake within ${deadlineMs} ms`), deadlineMs),
      reason: undefined,
    };
    pending.timer.unref();
    this.#pending.set(ends, pending);
    socket.once("close", () => {
      const isUnderWay = this.#remove(pending);
      const reason = pending.reason ?? (isUnderWay ? "closed before its handshake was over" : undefined);
      if (reason !== undefined) onError({ remote: pending.remote, reason });
    });
  }

  /** The handshake of the secured socket over a connection has failed; it closes by itself. */
  failed(secured: Socket, reason: string): void {
    const pending = this.#find(secured);
    if (pending !== undefined) pending.reason ??= reason;
  }

  /** The handshake is over. False: too late, it has been given up. */
  done(secured: Socket): boolean {
    const pending = this.#find(secured);
    return pending !== undefined && this.#remove(pending);
  }

  /** Ends all of them; no failure of theirs. */
  close(): void {
    for (const pending of this.#pending.values()) {
      this.#remove(pending);
      pending.socket.destroy();
    }
  }

  #find(secured: Socket): Pending | undefined {
    const ends = endsOf(secured);
    return ends === undefined ? undefined : this.#pending.get(ends);
  }

  #drop(pending: Pending, reason: string): void {
    this.#remove(pending);
    pending.reason ??= reason;
    pending.socket.destroy();
  }

  /** False: it had been removed before. */
  #remove(pending: Pending): boolean {
    clearTimeout(pending.timer);
    return this.#pending.get(pending.ends) === pending && this.#pending.delete(pending.ends);
  }
}

/** Undefined where it is closed. */
function endsOf(socket: Socket): string | undefined {
  const { remoteAddress, remotePort, localAddress, localPort } = socket;
  if (remoteAddress === undefined || localAddress === undefined) return undefined;
  return `${remoteAddress} ${remotePort} ${localAddress} ${localPort}`;
}
