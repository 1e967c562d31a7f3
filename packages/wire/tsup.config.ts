import { defineConfig } from "tsup";
import { library } from "../../tsup.base.ts";

export default defineConfig(
  library(["src/index.ts", "src/tcp.ts", "src/tls.ts", "src/memory.ts", "src/conformance.ts"]),
);
