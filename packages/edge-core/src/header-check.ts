import type { HeaderList } from "./edge-service.ts";

// RFC 9110, section 5.6.2: a token.
const NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
// RFC 9110, section 5.5: CR, LF and NUL are dangerous in a value.
// oxlint-disable-next-line no-control-regex
const VALUE = /^[^\0\r\n]*$/;

/** Name of the first header that HTTP cannot carry, made printable; undefined where all are fine. */
export function invalidHeader(headers: HeaderList): string | undefined {
  for (const [name, value] of headers) {
    if (!NAME.test(name) || !VALUE.test(value)) return JSON.stringify(name.slice(0, 64));
  }
  return undefined;
}
