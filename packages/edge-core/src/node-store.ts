import { sha256 } from "@noble/hashes/sha2.js";
import { hexToBytes, utf8ToBytes } from "@noble/hashes/utils.js";

import { EdgeError } from "./edge-error.ts";
import type { NodeRecord } from "./node-record.ts";

/**
 * The nodes that may register. Implementations answer from memory, in the same turn, and `find` must
 * take the same time whether the token exists or not (spec F2).
 */
export interface NodeStore {
  /** All records, in the order of the configuration; read by `createEdge` and `reload`. */
  readonly records: readonly NodeRecord[];
  /** The record whose token has this SHA-256 digest of 32 bytes; undefined where there is none. */
  find(tokenSha256: Uint8Array): NodeRecord | undefined;
}

/** The digest by which a `NodeStore` knows a token: SHA-256 (FIPS 180-4) of its UTF-8 bytes. */
export function digestToken(token: string): Uint8Array {
  return sha256(utf8ToBytes(token));
}

/**
 * A store over a list that does not change.
 * @throws EdgeError `invalid_config` where a digest is malformed or two nodes share a token.
 */
export function memoryNodeStore(records: readonly NodeRecord[]): NodeStore {
  const seen = new Set<string>();
  const entries = records.map((record) => {
    const digest = record.tokenSha256.toLowerCase();
    if (!/^[0-9a-f]{64}$/.test(digest))
      throw new EdgeError(
        "invalid_config",
        `nodes.${record.name}.tokenSha256: must be 64 hexadecimal digits`,
      );
    if (seen.has(digest))
      throw new EdgeError(
        "invalid_config",
        `nodes.${record.name}.tokenSha256: another node has the same token`,
      );
    seen.add(digest);
    return { record, digest: hexToBytes(digest) };
  });
  return {
    records,
    find(tokenSha256) {
      let found: NodeRecord | undefined;
      // All of them, wherever the match is: the time must not tell which tokens exist.
      for (const { record, digest } of entries) if (equalDigests(digest, tokenSha256)) found = record;
      return found;
    },
  };
}

/** Compares without stopping at the first difference. */
function equalDigests(left: Uint8Array, right: Uint8Array): boolean {
  let difference = left.length ^ right.length;
  for (const [index, byte] of left.entries()) difference |= byte ^ (right[index] ?? 0);
  return difference === 0;
}
