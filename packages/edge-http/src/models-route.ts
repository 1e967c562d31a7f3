import type { EdgeService } from "@iop/edge-core";
import { type ApiKey, mayUse } from "./api-keys.ts";
import { modelNotFound } from "./http-surface-error.ts";

/** `GET /v1/models` in OpenAI's shape: https://platform.openai.com/docs/api-reference/models/list */
export class ModelsRoute {
  readonly #edge: EdgeService;
  /** The catalog does not date its models, and the shape wants a date that stays: Unix time in seconds. */
  readonly #created = Math.floor(Date.now() / 1000);

  constructor(edge: EdgeService) {
    this.#edge = edge;
  }

  /** The models that `key` may use, as JSON. */
  list(key: ApiKey | undefined): string {
    const data = this.#edge
      .models()
      .filter((model) => mayUse(key, model.key))
      .map((model) => this.#entry(model.key));
    return JSON.stringify({ object: "list", data });
  }

  /**
   * One model, as JSON.
   * @param id As the path spells it, percent-encoded or not, with or without slashes.
   * @throws HttpSurfaceError `model_not_found`
   */
  get(id: string, key: ApiKey | undefined): string {
    const name = decoded(id);
    const known = this.#edge.models().some((model) => model.key === name);
    if (!known || !mayUse(key, name)) throw modelNotFound(name);
    return JSON.stringify(this.#entry(name));
  }

  #entry(id: string): object {
    return { id, object: "model", created: this.#created, owned_by: "iop" };
  }
}

function decoded(id: string): string {
  try {
    return decodeURIComponent(id);
  } catch {
    return id;
  }
}
