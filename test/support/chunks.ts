/** The chunks of a response body whose type says nothing of them. @throws where one is no bytes. */
export async function* chunksOf(body: AsyncIterable<unknown>): AsyncGenerator<Uint8Array> {
  for await (const chunk of body) {
    if (!(chunk instanceof Uint8Array)) throw new TypeError("a chunk that is no bytes");
    yield chunk;
  }
}
