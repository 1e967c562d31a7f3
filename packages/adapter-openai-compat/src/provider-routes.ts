import { RuntimeError, type ProviderConfig, type TunnelRequest } from "@iop/agent-runtime";

/** Where a request goes. */
export interface Route {
  readonly method: "GET" | "HEAD" | "POST";
  /** Path and query, with the endpoint's base path. */
  readonly path: string;
}

/** Operations that read; every other one is a POST. */
const READING: ReadonlySet<string> = new Set(["models"]);
const READ = ["GET", "HEAD"] as const;
const WRITE = ["POST"] as const;

/** The URLs that a provider may be asked: its endpoint, and below it the paths that its profile lists. */
export class ProviderRoutes {
  /** Scheme, host and port. */
  readonly origin: string;
  readonly #base: string;
  /** Operation to path, as the profile has it. */
  readonly #operations: ReadonlyMap<string, string>;

  /** @throws RuntimeError `invalid_config`, naming the key. */
  constructor(config: ProviderConfig) {
    const { endpoint, profile } = config;
    if (endpoint === undefined) throw new RuntimeError("invalid_config", "endpoint: is missing");
    if (profile === undefined) throw new RuntimeError("invalid_config", "profile: is missing");
    const url = parseEndpoint(endpoint);
    this.origin = url.origin;
    this.#base = url.pathname.replace(/\/$/, "");
    this.#operations = new Map(Object.entries(profile.operations));
    for (const [operation, path] of this.#operations) {
      if (!isNormalized(path))
        throw new RuntimeError(
          "invalid_config",
          `profile.operations.${operation}: must be a normalized path that starts with one /`,
        );
    }
  }

  /** Names of the operations, in the profile's order. */
  get operations(): readonly string[] {
    return [...this.#operations.keys()];
  }

  /**
   * Where `request` goes: by its operation, or by its path where it names none and the profile lists the
   * very path.
   * @throws RuntimeError `unsupported_operation`, `invalid_request`.
   */
  resolve(request: Pick<TunnelRequest, "operation" | "method" | "path">): Route {
    const operation = request.operation === "" ? this.#operationAt(request.path) : request.operation;
    const path = this.#operations.get(operation);
    if (path === undefined)
      throw new RuntimeError("unsupported_operation", `the profile has no operation ${quote(operation)}`);
    const methods = READING.has(operation) ? READ : WRITE;
    const method = methods.find((allowed) => allowed === request.method);
    if (method === undefined)
      throw new RuntimeError(
        "invalid_request",
        `operation ${operation} takes ${methods.join(" or ")}, not ${quote(request.method)}`,
      );
    return { method, path: this.#base + path };
  }

  /** What to ask to see whether the server answers: its models, else the endpoint itself. */
  get probe(): Route {
    const models = this.#operations.get("models");
    return { method: "GET", path: models === undefined ? `${this.#base}/` : this.#base + models };
  }

  #operationAt(path: string): string {
    for (const [operation, listed] of this.#operations) if (listed === path) return operation;
    throw new RuntimeError("invalid_request", `the profile does not list the path ${quote(path)}`);
  }
}

function parseEndpoint(endpoint: string): URL {
  const url = URL.parse(endpoint);
  if (url === null || (url.protocol !== "http:" && url.protocol !== "https:"))
    throw new RuntimeError("invalid_config", "endpoint: must be an http or https URL");
  if (url.username !== "" || url.password !== "")
    throw new RuntimeError("invalid_config", "endpoint: must not hold a user or password");
  if (url.search !== "" || url.hash !== "")
    throw new RuntimeError("invalid_config", "endpoint: must not have a query or fragment");
  return url;
}

/** Whether a URL parser leaves the path as it is: no dot segments, no other host, nothing to escape. */
function isNormalized(path: string): boolean {
  const url = path.startsWith("/") && !path.startsWith("//") ? URL.parse(path, "http://host") : null;
  return url !== null && url.pathname + url.search === path && url.host === "host";
}

/** A name from elsewhere, fit for one line. */
function quote(name: string): string {
  return JSON.stringify(name.slice(0, 100));
}
