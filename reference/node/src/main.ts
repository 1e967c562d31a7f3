import { runHost } from "@iop/reference-host";
import { loadNodeConfig } from "./node-config.ts";
import { runNode } from "./node-host.ts";

await runHost({
  name: "iop-node",
  description: "Dials an Edge and serves its requests with the model servers of this machine.",
  load: (file, { checkOnly }) => loadNodeConfig(file, { checkOnly, env: process.env }),
  run: runNode,
});
