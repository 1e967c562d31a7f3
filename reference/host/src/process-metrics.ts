import { readFileSync } from "node:fs";
import { Gauge, type Registry, collectDefaultMetrics } from "prom-client";
import { z } from "zod";

/**
 * Adds what is the same for all hosts: the program's version, and figures of its process and event loop
 * (`process_*`, `nodejs_*`). `manifest` is the program's package.json.
 */
export function addProcessMetrics(registry: Registry, component: string, manifest: URL): void {
  const { version } = z.object({ version: z.string() }).parse(JSON.parse(readFileSync(manifest, "utf8")));
  new Gauge({
    name: "iop_build_info",
    help: "Always 1; the labels say what runs.",
    labelNames: ["component", "version", "nodejs"],
    registers: [registry],
  }).set({ component, version, nodejs: process.version }, 1);
  collectDefaultMetrics({ register: registry });
}
