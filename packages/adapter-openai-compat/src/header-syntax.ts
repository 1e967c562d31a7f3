const NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
// One character a byte (ISO 8859-1): what HTTP/1.1 can carry. Leaves out CR, LF, NUL and the other controls.
const VALUE = /^[\t\x20-\x7E\x80-\xFF]*$/;

/** Whether `name` is an HTTP token. */
export function isHeaderName(name: string): boolean {
  return NAME.test(name);
}

/** Whether `value` can be a header's, as it is. */
export function isHeaderValue(value: string): boolean {
  return VALUE.test(value);
}
