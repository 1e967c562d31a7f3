import { defineConfig } from "vitest/config";

export default defineConfig({
  ssr: { resolve: { conditions: ["@iop/source", "node", "import", "default"] } },
  test: {
    projects: [
      {
        extends: true,
        test: {
          name: "unit",
          include: ["packages/*/src/**/*.test.ts", "reference/*/src/**/*.test.ts", "scripts/*.test.mjs"],
        },
      },
      { extends: true, test: { name: "conformance", include: ["test/conformance/**/*.test.ts"] } },
      { extends: true, test: { name: "simulation", include: ["test/simulation/**/*.test.ts"] } },
      {
        extends: true,
        test: {
          name: "e2e",
          include: ["test/e2e/**/*.test.ts", "test/chaos/**/*.test.ts"],
          testTimeout: 60_000,
          hookTimeout: 60_000,
          fileParallelism: false,
        },
      },
    ],
  },
});
