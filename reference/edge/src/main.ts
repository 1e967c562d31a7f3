import { runHost } from "@iop/reference-host";
import { loadEdgeConfig } from "./edge-config.ts";
import { runEdge } from "./edge-host.ts";

await runHost({
  name: "iop-edge",
  description: "Takes requests over HTTP and has the Nodes that dialled in serve them.",
  load: (file, { checkOnly }) => loadEdgeConfig(file, { checkOnly, env: process.env }),
  run: runEdge,
  reloadable: true,
});
