import { once } from "node:events";
import { connect, type Socket } from "node:net";

/** A client that speaks bytes, for what no HTTP library would send. */
export class RawClient {
  readonly socket: Socket;
  /** Everything received, one character a byte. */
  text = "";
  /** Resolves when the connection is over, with the code of the socket's error if there was one. */
  readonly closed: Promise<string | undefined>;
  #wake: (() => void) | undefined;

  constructor(port: number) {
    this.socket = connect({ port, host: "127.0.0.1", noDelay: true });
    let code: string | undefined;
    this.socket.on("error", (error: NodeJS.ErrnoException) => {
      code = error.code;
    });
    this.closed = new Promise((resolve) => {
      this.socket.on("close", () => {
        resolve(code);
        this.#wake?.();
      });
    });
    this.socket.on("data", (data: Buffer) => {
      this.text += data.toString("latin1");
      this.#wake?.();
    });
  }

  send(data: string | Uint8Array): void {
    this.socket.write(data);
  }

  /** Sends a request with a JSON body. */
  post(body: string | Uint8Array, headers: readonly string[] = []): void {
    const bytes = Buffer.from(body);
    this.send(
      [
        "POST /v1/chat/completions HTTP/1.1",
        "host: localhost",
        "content-type: application/json",
        `content-length: ${bytes.length}`,
        ...headers,
        "\r\n",
      ].join("\r\n"),
    );
    this.send(bytes);
  }

  /** Waits until what was received has `count` matches of `pattern`. */
  async until(pattern: string, count = 1): Promise<void> {
    while (this.text.split(pattern).length <= count) {
      if (this.socket.closed) throw new Error(`closed without ${pattern}: ${this.text}`);
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  async destroy(): Promise<void> {
    if (this.socket.closed) return;
    this.socket.destroy();
    await once(this.socket, "close");
  }
}
