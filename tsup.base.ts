import type { Options } from "tsup";

/** JavaScript only; declarations come from the native compiler (`tsc -p tsconfig.build.json`). */
export function library(entry: string[]): Options {
  return {
    entry,
    format: "esm",
    target: "esnext",
    platform: "node",
    sourcemap: true,
    clean: true,
    dts: false,
    silent: true,
  };
}
