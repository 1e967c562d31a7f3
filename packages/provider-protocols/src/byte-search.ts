/**
 * Makes a search for an ASCII text in bytes: index of its first byte at or after `from`, or -1.
 * Looks at about one byte in `text.length` (Horspool 1980), without a copy or a decode.
 */
export function createByteSearch(text: string): (bytes: Uint8Array, from?: number) => number {
  const needle = new TextEncoder().encode(text);
  const last = needle.length - 1;
  const lastByte = needle[last];
  const shift = new Uint8Array(256).fill(needle.length);
  needle.subarray(0, last).forEach((byte, index) => {
    shift[byte] = last - index;
  });

  return (bytes, from = 0) => {
    let end = from + last;
    while (end < bytes.length) {
      const byte = bytes[end] ?? 0;
      if (byte === lastByte) {
        let k = last - 1;
        while (k >= 0 && bytes[end - last + k] === needle[k]) k--;
        if (k < 0) return end - last;
      }
      end += shift[byte] ?? 1;
    }
    return -1;
  };
}
