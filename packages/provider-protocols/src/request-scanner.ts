import {
  afterNumberByte,
  INTEGER,
  isEscape,
  isHex,
  MINUS,
  NOT_A_NUMBER,
  NUMBER_ENDED,
  skipText,
  typeOfValue,
  ZERO,
} from "./json-bytes.ts";
import { ProtocolError, type BodyPosition, type ProtocolErrorCode } from "./protocol-error.ts";
import type { RequestScan, RequestScanner, RequestScannerOptions } from "./request-scan.ts";
import { RoutingValues } from "./routing-values.ts";

// Between tokens: white space is skipped (all states up to DONE).
const START = 0;
const FIRST_KEY = 1;
const KEY = 2;
const COLON = 3;
const VALUE = 4;
const FIRST_ELEMENT = 5;
const AFTER_VALUE = 6;
const DONE = 7;
// Inside a token.
const STRING = 8;
const ESCAPE = 9;
const HEX = 10;
const LITERAL = 11;
const BYTE_ORDER_MARK = 12;
/** In a number: this and a NumberState. */
const NUMBER = 16;

const OBJECT = 1;
const ARRAY = 0;

const TRUE = [0x74, 0x72, 0x75, 0x65];
const FALSE = [0x66, 0x61, 0x6c, 0x73, 0x65];
const NULL = [0x6e, 0x75, 0x6c, 0x6c];
const MARK = [0xef, 0xbb, 0xbf];

/** Makes a scanner for one request body; see {@link RequestScanner}. */
export function createRequestScanner(options: RequestScannerOptions = {}): RequestScanner {
  return new JsonScanner(options);
}

class JsonScanner implements RequestScanner {
  readonly #maxDepth: number;
  readonly #routing: RoutingValues;
  /** OBJECT or ARRAY for each open level; index 1 is the body. */
  readonly #levels: Uint8Array;
  #failure: ProtocolError | undefined;

  #state = START;
  #depth = 0;
  /** Bytes of the chunks before the present one. */
  #base = 0;
  #line = 1;
  /** Offset of the first byte of the present line. */
  #lineStart = 0;
  #inKey = false;
  #word: readonly number[] = TRUE;
  /** Next byte of `#word`, or hex digits to come. */
  #count = 0;
  /** Continuation bytes to come in a UTF-8 sequence, and the range of the next one. */
  #utf8Rest = 0;
  #utf8Low = 0;
  #utf8High = 0;
  /** The bytes that pass are of a top-level key or of a routing value. */
  #collecting = false;

  constructor(options: RequestScannerOptions) {
    this.#maxDepth = options.maxDepth ?? 256;
    this.#routing = new RoutingValues(options, {
      position: (offset) => this.#position(offset),
      error: (...about) => this.#error(...about),
    });
    this.#levels = new Uint8Array(this.#maxDepth + 1);
  }

  push(chunk: Uint8Array): void {
    if (this.#failure !== undefined) throw this.#failure;
    try {
      this.#scan(chunk);
    } catch (error) {
      if (error instanceof ProtocolError) this.#failure = error;
      throw error;
    }
  }

  end(): RequestScan {
    if (this.#failure !== undefined) throw this.#failure;
    if (this.#state !== DONE) {
      this.#failure = this.#error("truncated", this.#base, "The body ends before its JSON does");
      throw this.#failure;
    }
    return this.#routing.scan(this.#base);
  }

  #scan(chunk: Uint8Array): void {
    const length = chunk.length;
    const base = this.#base;
    const levels = this.#levels;
    const routing = this.#routing;
    let state = this.#state;
    let depth = this.#depth;
    let utf8Rest = this.#utf8Rest;
    // Start, in this chunk, of the bytes to collect; -1 for none.
    let from = this.#collecting ? 0 : -1;
    let i = 0;

    while (i < length) {
      const byte = chunk[i] ?? 0;
      if (state <= DONE && (byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09)) {
        if (byte === 0x0a) {
          this.#line++;
          this.#lineStart = base + i + 1;
        }
        i++;
        continue;
      }
      switch (state) {
        case STRING: {
          if (utf8Rest > 0) {
            if (byte < this.#utf8Low || byte > this.#utf8High) this.#failUtf8(base + i);
            this.#utf8Low = 0x80;
            this.#utf8High = 0xbf;
            utf8Rest--;
            i++;
            break;
          }
          i = skipText(chunk, i);
          if (i >= length) break;
          const special = chunk[i] ?? 0;
          if (special === 0x22) {
            if (this.#inKey) {
              state = COLON;
              if (depth === 1) {
                routing.endKey(chunk, from, i);
                from = -1;
              }
            } else {
              state = AFTER_VALUE;
              if (depth === 1 && from >= 0) {
                routing.endValue(chunk, from, i + 1);
                from = -1;
              }
            }
          } else if (special === 0x5c) {
            state = ESCAPE;
          } else if (special < 0x20) {
            this.#fail(base + i);
          } else {
            utf8Rest = this.#beginUtf8(special, base + i);
          }
          i++;
          break;
        }
        case ESCAPE:
          if (byte === 0x75) {
            this.#count = 4;
            state = HEX;
          } else if (isEscape(byte)) {
            state = STRING;
          } else {
            this.#fail(base + i);
          }
          i++;
          break;
        case HEX:
          if (!isHex(byte)) this.#fail(base + i);
          if (--this.#count === 0) state = STRING;
          i++;
          break;
        case FIRST_KEY:
        case KEY:
          if (byte === 0x22) {
            this.#inKey = true;
            state = STRING;
            if (depth === 1) {
              routing.beginKey(base + i);
              from = i + 1;
            }
          } else if (byte === 0x7d && state === FIRST_KEY) {
            depth--;
            state = depth === 0 ? DONE : AFTER_VALUE;
            if (depth === 1 && from >= 0) {
              routing.endValue(chunk, from, i + 1);
              from = -1;
            }
          } else {
            this.#fail(base + i);
          }
          i++;
          break;
        case COLON:
          if (byte !== 0x3a) this.#fail(base + i);
          state = VALUE;
          i++;
          break;
        case AFTER_VALUE:
          if (byte === 0x2c) {
            state = levels[depth] === OBJECT ? KEY : VALUE;
          } else if (byte === (levels[depth] === OBJECT ? 0x7d : 0x5d)) {
            depth--;
            if (depth === 0) state = DONE;
            if (depth === 1 && from >= 0) {
              routing.endValue(chunk, from, i + 1);
              from = -1;
            }
          } else {
            this.#fail(base + i);
          }
          i++;
          break;
        case FIRST_ELEMENT:
        case VALUE:
          if (byte === 0x5d && state === FIRST_ELEMENT) {
            depth--;
            state = AFTER_VALUE;
            if (depth === 1 && from >= 0) {
              routing.endValue(chunk, from, i + 1);
              from = -1;
            }
            i++;
            break;
          }
          if (depth === 1 && routing.awaited) {
            routing.beginValue(typeOfValue(byte) ?? this.#fail(base + i), base + i);
            from = i;
          }
          if (byte === 0x22) {
            this.#inKey = false;
            state = STRING;
          } else if (byte === 0x7b || byte === 0x5b) {
            if (depth === this.#maxDepth) this.#failDepth(base + i);
            depth++;
            levels[depth] = byte === 0x7b ? OBJECT : ARRAY;
            state = byte === 0x7b ? FIRST_KEY : FIRST_ELEMENT;
          } else if (byte >= 0x31 && byte <= 0x39) {
            state = NUMBER + INTEGER;
          } else if (byte === 0x30) {
            state = NUMBER + ZERO;
          } else if (byte === 0x2d) {
            state = NUMBER + MINUS;
          } else {
            const word = byte === 0x74 ? TRUE : byte === 0x66 ? FALSE : byte === 0x6e ? NULL : undefined;
            if (word === undefined) this.#fail(base + i);
            this.#word = word;
            this.#count = 1;
            state = LITERAL;
          }
          i++;
          break;
        case LITERAL:
          if (byte !== this.#word[this.#count]) this.#fail(base + i);
          this.#count++;
          i++;
          if (this.#count === this.#word.length) {
            state = AFTER_VALUE;
            if (depth === 1 && from >= 0) {
              routing.endValue(chunk, from, i);
              from = -1;
            }
          }
          break;
        case START:
          if (byte === 0x7b) {
            depth = 1;
            levels[1] = OBJECT;
            state = FIRST_KEY;
          } else if (byte === 0xef && base + i === 0) {
            this.#count = 1;
            state = BYTE_ORDER_MARK;
          } else if (typeOfValue(byte) === undefined) {
            this.#fail(base + i);
          } else {
            throw this.#error("not_an_object", base + i, "The body is no JSON object");
          }
          i++;
          break;
        case BYTE_ORDER_MARK:
          if (byte !== MARK[this.#count]) this.#fail(base + i);
          this.#count++;
          if (this.#count === MARK.length) state = START;
          i++;
          break;
        case DONE:
          this.#fail(base + i);
          break;
        default: {
          const next = afterNumberByte(state - NUMBER, byte);
          if (next === NUMBER_ENDED) {
            // The byte belongs to what follows the number and is read again.
            state = AFTER_VALUE;
            if (depth === 1 && from >= 0) {
              routing.endValue(chunk, from, i);
              from = -1;
            }
          } else if (next === NOT_A_NUMBER) {
            this.#fail(base + i);
          } else {
            state = NUMBER + next;
            i++;
          }
        }
      }
    }

    if (from >= 0) routing.add(chunk, from, length);
    this.#collecting = from >= 0;
    this.#state = state;
    this.#depth = depth;
    this.#utf8Rest = utf8Rest;
    this.#base = base + length;
  }

  /** Checks the first byte of a UTF-8 sequence; returns how many bytes follow. */
  #beginUtf8(byte: number, offset: number): number {
    this.#utf8Low = byte === 0xe0 ? 0xa0 : byte === 0xf0 ? 0x90 : 0x80;
    this.#utf8High = byte === 0xed ? 0x9f : byte === 0xf4 ? 0x8f : 0xbf;
    if (byte >= 0xc2 && byte <= 0xdf) return 1;
    if (byte >= 0xe0 && byte <= 0xef) return 2;
    if (byte >= 0xf0 && byte <= 0xf4) return 3;
    return this.#failUtf8(offset);
  }

  #position(offset: number): BodyPosition {
    return { offset, line: this.#line, column: offset - this.#lineStart + 1 };
  }

  #error(code: ProtocolErrorCode, offset: number, what: string, key?: string): ProtocolError {
    const position = this.#position(offset);
    const where = `line ${position.line}, column ${position.column} (byte ${offset})`;
    return new ProtocolError(code, `${what}: ${where}`, { position, key });
  }

  #fail(offset: number): never {
    throw this.#error("invalid_json", offset, "The body is not valid JSON");
  }

  #failUtf8(offset: number): never {
    throw this.#error("invalid_utf8", offset, "A string in the body is not valid UTF-8");
  }

  #failDepth(offset: number): never {
    throw this.#error("too_deep", offset, `The body is nested deeper than ${this.#maxDepth}`);
  }
}
