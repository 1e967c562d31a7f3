import { BoundedText } from "./bounded-text.ts";
import type { BodyPosition, ProtocolError, ProtocolErrorCode } from "./protocol-error.ts";
import type { RequestScan, RequestScannerOptions, RoutingValue } from "./request-scan.ts";
import { RoutingKeys } from "./routing-keys.ts";

/** Knows the lines of the body that is being read. */
export interface BodyLocator {
  position(offset: number): BodyPosition;
  /** An error that says where. */
  error(code: ProtocolErrorCode, offset: number, what: string, key?: string): ProtocolError;
}

/**
 * The routing values of one body. Told where each top-level key and each value that it waits for begins and
 * ends, it keeps those that routing reads. Offsets count from the start of the body.
 */
export class RoutingValues {
  readonly #maxValueBytes: number;
  readonly #keys: RoutingKeys;
  readonly #text: BoundedText;
  readonly #locator: BodyLocator;
  readonly #values = new Map<string, RoutingValue>();
  /** The routing key whose value comes next or is being read. */
  #name: string | undefined;
  /** Where the key or value that is being read starts. */
  #start = 0;
  #type: RoutingValue["type"] = "null";

  constructor(options: RequestScannerOptions, locator: BodyLocator) {
    this.#maxValueBytes = options.maxValueBytes ?? 1024;
    this.#keys = new RoutingKeys(["model", "stream", ...(options.keys ?? [])]);
    this.#text = new BoundedText(Math.max(this.#maxValueBytes, this.#keys.maxSpellingBytes));
    this.#locator = locator;
  }

  /** The value of the key that was read last is one to keep. */
  get awaited(): boolean {
    return this.#name !== undefined;
  }

  /** A top-level key begins at `offset`, with its quote. */
  beginKey(offset: number): void {
    this.#text.begin(this.#keys.maxSpellingBytes);
    this.#start = offset;
  }

  /** Takes a part of the key (without its quotes) or value that is being read; the rest follows. */
  add(chunk: Uint8Array, from: number, to: number): void {
    this.#text.add(chunk, from, to);
  }

  /**
   * The key ends before `to`.
   * @throws ProtocolError `duplicate_key`
   */
  endKey(chunk: Uint8Array, from: number, to: number): void {
    this.#text.add(chunk, from, to);
    const spelling = this.#text.text();
    if (spelling === undefined) {
      this.#name = undefined;
      return;
    }
    const key: unknown = spelling.includes("\\") ? JSON.parse(`"${spelling}"`) : spelling;
    this.#name =
      typeof key === "string" ? this.#keys.use(key, () => this.#locator.position(this.#start)) : undefined;
  }

  /**
   * The awaited value begins.
   * @throws ProtocolError `wrong_type`
   */
  beginValue(type: RoutingValue["type"], offset: number): void {
    const name = this.#name;
    if (name === "model" && type !== "string") {
      throw this.#locator.error("wrong_type", offset, 'The value of "model" is no string', name);
    }
    if (name === "stream" && type !== "boolean" && type !== "null") {
      throw this.#locator.error("wrong_type", offset, 'The value of "stream" is no boolean', name);
    }
    this.#type = type;
    this.#start = offset;
    this.#text.begin(this.#maxValueBytes);
  }

  /**
   * The awaited value ends before `to`.
   * @throws ProtocolError `value_too_large`
   */
  endValue(chunk: Uint8Array, from: number, to: number): void {
    const name = this.#name;
    if (name === undefined) return;
    this.#name = undefined;
    this.#text.add(chunk, from, to);
    const json = this.#text.text();
    if (json === undefined && name === "model") {
      const what = `The value of "model" is longer than ${this.#maxValueBytes} bytes`;
      throw this.#locator.error("value_too_large", this.#start, what, name);
    }
    this.#values.set(name, { offset: this.#start, length: this.#text.length, type: this.#type, json });
  }

  /** What was found in a body of `byteLength` bytes. */
  scan(byteLength: number): RequestScan {
    return { byteLength, model: this.#model(), stream: this.#stream(), values: this.#values };
  }

  #model(): RequestScan["model"] {
    const found = this.#values.get("model");
    if (found?.json === undefined) return undefined;
    const value: unknown = JSON.parse(found.json);
    return typeof value === "string" ? { offset: found.offset, length: found.length, value } : undefined;
  }

  #stream(): RequestScan["stream"] {
    const found = this.#values.get("stream");
    if (found?.type !== "boolean") return undefined;
    return { offset: found.offset, length: found.length, value: found.json === "true" };
  }
}
