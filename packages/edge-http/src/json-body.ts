import {
  createRequestScanner,
  ProtocolError,
  replaceModel,
  type RequestScan,
  type RequestScanner,
} from "@iop/provider-protocols";
import { HttpSurfaceError } from "./http-surface-error.ts";
import { PROMPT_CACHE_KEY } from "./session-name.ts";

/**
 * A request body that is read without being parsed: its chunks, and where its `model` stands. All that
 * this package knows of the scanner is here.
 */
export class JsonBody {
  #chunks: Uint8Array[] = [];
  #scanner: RequestScanner | undefined = createRequestScanner({ keys: [PROMPT_CACHE_KEY] });
  #scan: RequestScan | undefined;

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
      this.#scan = this.#scanner?.end();
    } catch (error) {
      throw refusal(error);
    }
    this.#scanner = undefined;
    const model = this.#scan?.model;
    if (model === undefined || model.value === "")
      throw new HttpSurfaceError("missing_model", 400, "You must provide a model parameter.", {
        param: "model",
      });
    return model.value;
  }

  /** The complete body's `prompt_cache_key`, where it is a string of sensible length. */
  get promptCacheKey(): string | undefined {
    const json = this.#scan?.values.get(PROMPT_CACHE_KEY)?.json;
    const value: unknown = json === undefined ? undefined : JSON.parse(json);
    return typeof value === "string" ? value : undefined;
  }

  /** The chunks with `target` in the place of the model's name; every other byte as it came. */
  withModel(target: string): readonly Uint8Array[] {
    if (this.#scan?.model === undefined) throw new Error("the body is not complete");
    return replaceModel(this.#chunks, this.#scan.model, target);
  }

  /** Lets go of the bytes. */
  drop(): void {
    this.#chunks = [];
    this.#scanner = undefined;
    this.#scan = undefined;
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
