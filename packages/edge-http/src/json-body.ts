import {
  createRequestScanner,
  ProtocolError,
  replaceModel,
  type RequestScan,
  type RequestScanner,
} from "@iop/provider-protocols";
import { HttpSurfaceError } from "./http-surface-error.ts";

/**
 * A request body that is read without being parsed: its chunks, and where its `model` stands. All that
 * this package knows of the scanner is here.
 */
export class JsonBody {
  #chunks: Uint8Array[] = [];
  #scanner: RequestScanner | undefined = createRequestScanner();
  #model: RequestScan["model"];

  /** @throws HttpSurfaceError `invalid_json`, `duplicate_key`, `invalid_model` */
  push(chunk: Uint8Array): void {
    try {
      this.#scanner?.push(chunk);
    } catch (error) {
      throw refusal(error);
    }
    this.#chunks.push(chunk);
  }

  /**
   * The body is complete; its model.
   * @throws HttpSurfaceError `invalid_json`, `missing_model`
   */
  end(): string {
    try {
      this.#model = this.#scanner?.end().model;
    } catch (error) {
      throw refusal(error);
    }
    this.#scanner = undefined;
    if (this.#model === undefined || this.#model.value === "")
      throw new HttpSurfaceError("missing_model", 400, "You must provide a model parameter.", {
        param: "model",
      });
    return this.#model.value;
  }

  /** The chunks with `target` in the place of the model's name; every other byte as it came. */
  withModel(target: string): readonly Uint8Array[] {
    if (this.#model === undefined) throw new Error("the body is not complete");
    return replaceModel(this.#chunks, this.#model, target);
  }

  /** Lets go of the bytes. */
  drop(): void {
    this.#chunks = [];
    this.#scanner = undefined;
    this.#model = undefined;
  }
}

function refusal(error: unknown): unknown {
  if (!ProtocolError.is(error)) return error;
  const message = `The request body is refused: ${error.message}.`;
  const details = { cause: error, ...(error.key === undefined ? {} : { param: error.key }) };
  switch (error.code) {
    case "duplicate_key":
      return new HttpSurfaceError("duplicate_key", 400, message, details);
    case "wrong_type":
    case "value_too_large":
      return new HttpSurfaceError(
        error.key === "model" ? "invalid_model" : "invalid_json",
        400,
        message,
        details,
      );
    case "invalid_json":
    case "invalid_utf8":
    case "truncated":
    case "not_an_object":
    case "too_deep":
      return new HttpSurfaceError("invalid_json", 400, message, details);
    case "invalid_range":
      return error;
  }
}
