import { randomBytes } from "node:crypto";
import { sha256Hex } from "@iop/reference-host";

/** `node`: a Node's registration token. `key`: a caller's API key. */
export type TokenKind = "node" | "key";

/** A secret of 256 random bits; its prefix says what it is, for people and for scanners of leaked secrets. */
export function createToken(kind: TokenKind): string {
  return `iop_${kind}_${randomBytes(32).toString("base64url")}`;
}

/** The secret, once, and what the Edge's file says of it. */
export function describeToken(kind: TokenKind, name: string, token: string): string {
  const digest = sha256Hex(token);
  const entry =
    kind === "node"
      ? `  - name: ${name}\n    token: { sha256: "${digest}" }\n`
      : `  - { name: ${name}, sha256: "${digest}", models: ["*"] }\n`;
  const variable = `${name.toUpperCase().replaceAll(/[^A-Z0-9]/g, "_")}_${kind === "node" ? "TOKEN" : "KEY"}`;
  const use =
    kind === "node"
      ? `# on the Node, which reads it through node.yaml: token: { env: ${variable} }\nexport ${variable}=${token}\n`
      : `# for the caller; it is not shown again\n${token}\n`;
  return `${use}\n# in edge.yaml, under ${kind === "node" ? "nodes" : "api_keys"}\n${entry}`;
}
