/** What a connection tells its owner. Calls come one at a time and never from within a call of the owner's. */
export interface ConnectionHandlers {
  /** Bytes arrived, in order. The chunk is the owner's to keep. */
  data(chunk: Uint8Array): void;
  /** `queuedBytes` has fallen to 0 after it had been 64 KiB or more. */
  drained(): void;
  /** The connection is gone; called exactly once, last. `error` says why where the transport knows. */
  closed(error?: Error): void;
}

/**
 * A reliable, ordered byte stream between an Edge and a Node: what a transport must provide.
 *
 * Reading starts with `open` and is never paused: what arrives is read at once (flow control is the
 * session's), so an implementation needs no read side backpressure.
 */
export interface Connection {
  /** The other end, for logs: `127.0.0.1:50412`. */
  readonly remote: string;
  /** Bytes written that the operating system has not taken yet. */
  readonly queuedBytes: number;
  /** Starts delivery; called once, in the turn in which the connection was handed out. */
  open(handlers: ConnectionHandlers): void;
  /** Queues the chunks in order, by reference: they must not change until taken. Ignored after `end` or `destroy`. */
  write(chunks: readonly Uint8Array[]): void;
  /** Sends what is queued, then closes; what still arrives is discarded. Gone at the latest after `lingerMs`. */
  end(lingerMs: number): void;
  /** Closes at once; what is queued is lost. Idempotent. */
  destroy(error?: Error): void;
}

/** A listening end. */
export interface Listener {
  /** Where it listens, for people and for `dial`: `127.0.0.1:7443`. */
  readonly address: string;
  /** Stops listening. Connections that were handed out live on. Idempotent. */
  close(): Promise<void>;
}

/**
 * How Edges and Nodes reach each other. Errors are `WireError` with code `dial_failed`, or
 * `certificate_rejected` where dialling again would find the same certificate.
 */
export interface Transport {
  /** Resolves with an open connection. Aborting rejects with the signal's reason and leaves nothing behind. */
  dial(options: { readonly signal: AbortSignal }): Promise<Connection>;
  /** Resolves once connections are accepted. `accept` must call `connection.open` before it returns, or destroy it. */
  listen(options: { readonly accept: (connection: Connection) => void }): Promise<Listener>;
}
