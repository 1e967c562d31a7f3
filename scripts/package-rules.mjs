// What each package may import, beside itself and relative files: the table of docs/architecture.md as data.
//
// imports:  packages, with their subpaths. Dependencies of the manifest are held to the same list.
// builtins: `true`, or the files of `src` that may use Node's own modules; elsewhere code stays portable.

const ours = (...names) => names.map((name) => `@iop/${name}`);

export const rules = {
  "packages/wire": {
    imports: ["@bufbuild/protobuf"],
    builtins: [
      "tcp.ts",
      "tls.ts",
      "socket-connection.ts",
      "socket-dial.ts",
      "socket-listener.ts",
      "pending-handshakes.ts",
    ],
  },
  "packages/agent-runtime": { imports: [], builtins: ["conformance.ts"] },
  "packages/provider-protocols": { imports: [...ours("agent-runtime"), "eventsource-parser"], builtins: [] },
  "packages/edge-core": {
    // protobuf makes the wire's messages; noble hashes tokens where there is no Node.
    imports: [...ours("wire"), "@bufbuild/protobuf", "@noble/hashes", "eventemitter3"],
    builtins: [],
  },
  "packages/edge-http": { imports: ours("edge-core", "provider-protocols"), builtins: true },
  "packages/node-core": { imports: ours("wire", "agent-runtime"), builtins: true },
  "packages/adapter-openai-compat": {
    imports: [...ours("agent-runtime", "provider-protocols"), "undici", "zod"],
    builtins: true,
  },
  // Wiring: any package of ours, and what command lines, files and logs need.
  "reference/host": { imports: ["commander", "pino", "prom-client", "yaml", "zod"], builtins: true },
  "reference/edge": {
    imports: [...ours("edge-core", "edge-http", "wire", "reference-host"), "prom-client", "zod"],
    builtins: true,
  },
  "reference/node": {
    imports: [...ours("node-core", "adapter-openai-compat", "wire", "reference-host"), "prom-client", "zod"],
    builtins: true,
  },
  "reference/cli": {
    imports: [...ours("reference-host"), "commander", "eventsource-parser", "zod"],
    builtins: true,
  },
  "reference/provider": { imports: [...ours("reference-host"), "commander", "zod"], builtins: true },
  "reference/start": {
    imports: [
      ...ours("reference-host", "reference-edge", "reference-node", "reference-provider"),
      "commander",
    ],
    builtins: true,
  },
};

/** A file that is longer holds two concepts. */
export const MAX_FILE_LINES = 400;
/** An index that is longer is no page that a newcomer reads. */
export const MAX_INDEX_LINES = 100;
