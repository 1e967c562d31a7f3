/**
 * - `invalid_options`: `createNode` was called with something wrong; the message names the option.
 * - `already_running`: `run` was called while it runs.
 *
 * Fatal, the same attempt would fail again:
 * - `certificate_rejected`: the Edge showed a certificate that is not trusted, not valid now, or not its own.
 * - `unknown_token`: the Edge does not know the token.
 * - `name_mismatch`: the token belongs to a node of another name.
 * - `unsupported_version`: the Edge does not speak this version of the wire.
 * - `edge_mismatch`: the Edge that answered is not the one that was asked for.
 * - `refused`: the Edge refused for good, for a reason that this version does not know.
 * - `invalid_provider_config`: an adapter says that a provider's configuration is wrong.
 *
 * - `exhausted`: as many attempts in a row as were allowed have failed; `cause` is the last failure.
 */
export type NodeErrorCode =
  | "invalid_options"
  | "already_running"
  | "certificate_rejected"
  | "unknown_token"
  | "name_mismatch"
  | "unsupported_version"
  | "edge_mismatch"
  | "refused"
  | "invalid_provider_config"
  | "exhausted";

/** The one error class of a Node; switch on `code`. Messages never hold a token, a prompt or a completion. */
export class NodeError extends Error {
  override readonly name = "NodeError";
  readonly code: NodeErrorCode;

  constructor(code: NodeErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }

  /** True for a NodeError of any copy of this package. */
  static is(error: unknown): error is NodeError {
    return (
      error instanceof Error &&
      error.name === "NodeError" &&
      "code" in error &&
      typeof error.code === "string"
    );
  }
}
