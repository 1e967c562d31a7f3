import type { WriteStream } from "node:tty";

/** Of a terminal that does not know its own size: some say 0. */
const USUAL = { columns: 80, rows: 24 };

/** How many characters a line has. */
export function columnsOf(out: WriteStream): number {
  return out.columns > 0 ? out.columns : USUAL.columns;
}

/** Full-screen drawing on a terminal's second screen, so that what was there before comes back at the end. */
export class Screen implements Disposable {
  readonly #out: WriteStream;
  readonly #restore = (): void => this[Symbol.dispose]();
  #active = true;

  constructor(out: WriteStream) {
    this.#out = out;
    // https://invisible-island.net/xterm/ctlseqs/ctlseqs.html: second screen; cursor hidden.
    out.write("\x1b[?1049h\x1b[?25l");
    process.on("exit", this.#restore);
  }

  get width(): number {
    return columnsOf(this.#out);
  }

  /** Shows these lines, as many as fit, and nothing else. */
  draw(lines: readonly string[]): void {
    const shown = lines.slice(0, this.#out.rows > 0 ? this.#out.rows : USUAL.rows);
    this.#out.write(`\x1b[H${shown.map((line) => `${line}\x1b[K`).join("\r\n")}\x1b[J`);
  }

  [Symbol.dispose](): void {
    if (!this.#active) return;
    this.#active = false;
    process.off("exit", this.#restore);
    this.#out.write("\x1b[?25h\x1b[?1049l");
  }
}
