/** One provider of a node, as configured. Holds no secret: `authEnv` only names a variable of the Node. */
export interface ProviderRecord {
  /** The adapter instance's stable name, unique within its node. */
  readonly id: string;
  /** The adapter's kind, for example `openai-compat`. */
  readonly adapter: string;
  /** Name of a protocol profile. */
  readonly profile: string;
  readonly endpoint?: string | undefined;
  /** Requests that it serves at once; at least 1. */
  readonly capacity: number;
  /** Bounds requests with a long input among them. Default: all of the capacity may be long. */
  readonly long?:
    | {
        /** Long requests at once. */
        readonly capacity: number;
        /** Input tokens from which on a request is long. */
        readonly thresholdTokens: number;
      }
    | undefined;
  /** Who is charged with the usage; passed on in `RunDispatch`. */
  readonly usageAttribution: string;
  /** A provider that is not enabled stays visible, is not delivered to its Node and gets no work. */
  readonly enabled: boolean;
  /** Environment variable of the Node that holds the provider's key. */
  readonly authEnv?: string | undefined;
  /** 0: no limit. */
  readonly firstByteTimeoutMs: number;
  /** Longest silence between two chunks; 0: no limit. */
  readonly idleTimeoutMs: number;
}

/** One node that may register, as configured. */
export interface NodeRecord {
  /** The node id, unique within the Edge. */
  readonly name: string;
  /** SHA-256 of its token, as 64 hexadecimal digits. */
  readonly tokenSha256: string;
  readonly providers: readonly ProviderRecord[];
}
