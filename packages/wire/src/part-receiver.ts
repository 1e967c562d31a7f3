import { WireError } from "./wire-error.ts";
import type { WireStream } from "./wire-stream.ts";

/**
 * Puts together a body whose beginning came in the opening message and whose rest follows as Parts. Each
 * byte is copied once, into a buffer of the announced length; credit comes back as the bytes arrive.
 * @throws WireError `body_too_large` over `limitBytes` (before anything is allocated),
 *   `stream_protocol_error` where the parts do not add up, or what ended the stream.
 */
export async function receiveBody(
  stream: WireStream,
  options: { readonly head: Uint8Array; readonly lengthBytes: number; readonly limitBytes: number },
): Promise<Uint8Array> {
  const { head, lengthBytes, limitBytes } = options;
  if (lengthBytes > limitBytes) {
    throw new WireError("body_too_large", `body of ${lengthBytes} bytes; the limit is ${limitBytes}`);
  }
  if (lengthBytes <= head.length) return head;
  const body = new Uint8Array(lengthBytes);
  body.set(head);
  let at = head.length;
  for (;;) {
    const { done, value } = await stream.next();
    if (done === true || value.case !== "part") {
      throw new WireError("stream_protocol_error", `body ended after ${at} of ${lengthBytes} bytes`);
    }
    const { data, last } = value.value;
    if (at + data.length > lengthBytes) {
      throw new WireError("stream_protocol_error", `body is longer than the announced ${lengthBytes} bytes`);
    }
    body.set(data, at);
    at += data.length;
    if (!last) continue;
    if (at !== lengthBytes)
      throw new WireError("stream_protocol_error", `body of ${at} bytes, ${lengthBytes} announced`);
    return body;
  }
}
