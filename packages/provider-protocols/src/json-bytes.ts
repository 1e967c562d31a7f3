import type { RoutingValue } from "./request-scan.ts";

// How far a number has been read.
export const MINUS = 0;
export const ZERO = 1;
export const INTEGER = 2;
const DOT = 3;
const FRACTION = 4;
const EXPONENT = 5;
const EXPONENT_SIGN = 6;
const EXPONENT_DIGITS = 7;
export const NUMBER_ENDED = 8;
export const NOT_A_NUMBER = 9;

/** 1 for the bytes that stand for themselves in a string: ASCII without controls, quote and backslash. */
const PLAIN = new Uint8Array(256).fill(1, 0x20, 0x80);
PLAIN[0x22] = 0;
PLAIN[0x5c] = 0;

/** Type of the JSON value that starts with `byte`; undefined where none does. */
export function typeOfValue(byte: number): RoutingValue["type"] | undefined {
  switch (byte) {
    case 0x22:
      return "string";
    case 0x7b:
      return "object";
    case 0x5b:
      return "array";
    case 0x74:
    case 0x66:
      return "boolean";
    case 0x6e:
      return "null";
    default:
      return byte === 0x2d || (byte >= 0x30 && byte <= 0x39) ? "number" : undefined;
  }
}

/** State after `byte` inside a number: NUMBER_ENDED where the number ended before it, NOT_A_NUMBER where it may not be there. */
export function afterNumberByte(state: number, byte: number): number {
  const digit = byte >= 0x30 && byte <= 0x39;
  switch (state) {
    case MINUS:
      return byte === 0x30 ? ZERO : digit ? INTEGER : NOT_A_NUMBER;
    case ZERO:
    case INTEGER:
      if (digit) return state === INTEGER ? INTEGER : NOT_A_NUMBER;
      if (byte === 0x2e) return DOT;
      return byte === 0x65 || byte === 0x45 ? EXPONENT : NUMBER_ENDED;
    case DOT:
      return digit ? FRACTION : NOT_A_NUMBER;
    case FRACTION:
      if (digit) return FRACTION;
      return byte === 0x65 || byte === 0x45 ? EXPONENT : NUMBER_ENDED;
    case EXPONENT:
      if (byte === 0x2b || byte === 0x2d) return EXPONENT_SIGN;
      return digit ? EXPONENT_DIGITS : NOT_A_NUMBER;
    case EXPONENT_SIGN:
      return digit ? EXPONENT_DIGITS : NOT_A_NUMBER;
    default:
      return digit ? EXPONENT_DIGITS : NUMBER_ENDED;
  }
}

/** Skips what needs no attention in a string: plain bytes, and whole sequences of the common UTF-8 kinds. */
export function skipText(chunk: Uint8Array, start: number): number {
  const length = chunk.length;
  let i = start;
  while (i < length) {
    const byte = chunk[i] ?? 0;
    if (PLAIN[byte] === 1) {
      i++;
    } else if (byte >= 0xe1 && byte <= 0xec && i + 2 < length) {
      if (((chunk[i + 1] ?? 0) & 0xc0) !== 0x80 || ((chunk[i + 2] ?? 0) & 0xc0) !== 0x80) return i;
      i += 3;
    } else if (byte >= 0xc2 && byte <= 0xdf && i + 1 < length) {
      if (((chunk[i + 1] ?? 0) & 0xc0) !== 0x80) return i;
      i += 2;
    } else {
      return i;
    }
  }
  return i;
}

/** `"`, `\`, `/`, b, f, n, r, t. */
export function isEscape(byte: number): boolean {
  return (
    byte === 0x22 ||
    byte === 0x5c ||
    byte === 0x2f ||
    byte === 0x62 ||
    byte === 0x66 ||
    byte === 0x6e ||
    byte === 0x72 ||
    byte === 0x74
  );
}

export function isHex(byte: number): boolean {
  return (byte >= 0x30 && byte <= 0x39) || (byte >= 0x61 && byte <= 0x66) || (byte >= 0x41 && byte <= 0x46);
}
