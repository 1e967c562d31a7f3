const LF = 0x0a;
const CR = 0x0d;
const MARK = new Uint8Array([0xef, 0xbb, 0xbf]);

export interface SseSplitterOptions {
  /**
   * Called for each event with its lines, without the end of the last one and without the blank line.
   * Comments and fields are not looked at. The bytes are a view of the pushed chunk where the event lies in
   * one, else a buffer of their own; they stay valid as long as the caller leaves its chunks alone.
   */
  readonly onEvent: (event: Uint8Array) => void;
  /** Called in place of `onEvent` for an event over `maxEventBytes`, with its size. */
  readonly onOversize?: ((byteLength: number) => void) | undefined;
  /** Default 32 MiB: inline images make lines of several MB. */
  readonly maxEventBytes?: number | undefined;
}

/** Cuts a stream of server-sent events into its events, by bytes, whatever the chunks and line ends are. */
export interface SseSplitter {
  /** Reads the next chunk; calls `onEvent` for each event that it completes. */
  push(chunk: Uint8Array): void;
  /** The stream is over. Returns the lines of an event that no blank line ended, or undefined for none. */
  end(): Uint8Array | undefined;
}

/**
 * Makes a splitter for one stream. Lines end with CRLF, LF or CR (WHATWG HTML, 9.2.5), one leading byte
 * order mark is dropped, blank lines without an event before them are skipped. An event ends at the first
 * byte that ends its blank line, so a CR at the end of a chunk delays nothing.
 */
export function createSseSplitter(options: SseSplitterOptions): SseSplitter {
  return new Splitter(options);
}

class Splitter implements SseSplitter {
  readonly #onEvent: (event: Uint8Array) => void;
  readonly #onOversize: ((byteLength: number) => void) | undefined;
  readonly #maxEventBytes: number;
  /** Bytes of the event from earlier chunks; empty while the event is too long to keep. */
  #kept = new Uint8Array(0);
  /** Bytes of the event in earlier chunks, kept or not. */
  #length = 0;
  /** Bytes of the event up to the end of its last non-blank line, without the line end; once that line has ended. */
  #contentLength = 0;
  #lineIsEmpty = true;
  /** The byte before was a CR: an LF now is part of the same line end. */
  #afterCr = false;
  /** Bytes of the byte order mark seen at the start; 3 when that is settled. */
  #mark = 0;

  constructor(options: SseSplitterOptions) {
    this.#onEvent = options.onEvent;
    this.#onOversize = options.onOversize;
    this.#maxEventBytes = options.maxEventBytes ?? 32 * 1024 * 1024;
  }

  push(chunk: Uint8Array): void {
    let start = 0;
    while (this.#mark < 3 && start < chunk.length) {
      if (chunk[start] === MARK[this.#mark]) {
        this.#mark++;
        start++;
      } else {
        const seen = this.#mark;
        this.#mark = 3;
        if (seen > 0) this.#split(MARK, 0, seen);
      }
    }
    if (start < chunk.length) this.#split(chunk, start, chunk.length);
  }

  end(): Uint8Array | undefined {
    if (this.#mark < 3) {
      const seen = this.#mark;
      this.#mark = 3;
      if (seen > 0) this.#split(MARK, 0, seen);
    }
    const length = this.#lineIsEmpty ? this.#contentLength : this.#length;
    const tail = length > 0 && length <= this.#maxEventBytes ? this.#kept.subarray(0, length) : undefined;
    if (length > this.#maxEventBytes) this.#onOversize?.(length);
    this.#reset();
    return tail;
  }

  #split(chunk: Uint8Array, from: number, to: number): void {
    let start = from;
    let i = from;
    let lf = -1;
    let cr = -1;
    while (i < to) {
      if (this.#afterCr) {
        this.#afterCr = false;
        if (chunk[i] === LF) {
          i++;
          if (this.#length === 0 && this.#contentLength === 0) start = i;
          continue;
        }
      }
      // Each byte is looked at once for each of the two, however many events the chunk has.
      if (lf < i) lf = find(chunk, LF, i, to);
      if (cr < i) cr = find(chunk, CR, i, to);
      const lineEnd = Math.min(lf, cr);
      if (lineEnd > i) this.#lineIsEmpty = false;
      if (lineEnd === to) break;
      if (this.#lineIsEmpty) {
        this.#deliver(chunk, start);
        start = lineEnd + 1;
      } else {
        this.#contentLength = this.#length + lineEnd - start;
        this.#lineIsEmpty = true;
      }
      this.#afterCr = lineEnd === cr;
      i = lineEnd + 1;
    }
    this.#keep(chunk.subarray(start, to));
  }

  /** A blank line ended the event; what of it is in `chunk` starts at `start`. */
  #deliver(chunk: Uint8Array, start: number): void {
    const length = this.#contentLength;
    if (length === 0) {
      this.#reset();
    } else if (length > this.#maxEventBytes) {
      this.#reset();
      this.#onOversize?.(length);
    } else if (this.#length === 0) {
      this.#reset();
      this.#onEvent(chunk.subarray(start, start + length));
    } else {
      if (length > this.#length) this.#keep(chunk.subarray(start, start + length - this.#length));
      const event = this.#kept.subarray(0, length);
      this.#reset();
      this.#onEvent(event);
    }
  }

  #keep(part: Uint8Array): void {
    if (part.length === 0) return;
    const length = this.#length + part.length;
    const content = this.#lineIsEmpty ? this.#contentLength : length;
    if (content > this.#maxEventBytes) {
      this.#kept = new Uint8Array(0);
    } else {
      if (length > this.#kept.length) {
        const grown = new Uint8Array(Math.max(length, 2 * this.#kept.length, 256));
        grown.set(this.#kept.subarray(0, this.#length));
        this.#kept = grown;
      }
      this.#kept.set(part, this.#length);
    }
    this.#length = length;
  }

  #reset(): void {
    // Not reused: the event was handed out.
    if (this.#kept.length > 0) this.#kept = new Uint8Array(0);
    this.#length = 0;
    this.#contentLength = 0;
    this.#lineIsEmpty = true;
  }
}

/** Index of `byte` in `chunk` from `from` on, or `to`. */
function find(chunk: Uint8Array, byte: number, from: number, to: number): number {
  const index = chunk.indexOf(byte, from);
  return index === -1 || index > to ? to : index;
}
