import { describe, test } from "vitest";

import type { TransportFixture } from "./conformance.ts";
import { transportCases } from "./conformance.ts";
import { memoryTransport } from "./memory.ts";
import { tcp } from "./tcp.ts";

describe("tcp", () => {
  const cases = transportCases(() => ({
    listening: tcp({ host: "127.0.0.1", port: 0 }),
    dialling: (address) => tcp({ host: "127.0.0.1", port: Number(address.split(":")[1]) }),
  }));
  for (const { name, run } of cases) test(name, run);
});

describe("memory", () => {
  for (const { name, run } of transportCases(() => memory())) test(name, run);
  for (const { name, run } of transportCases(() => memory(() => 1021))) test(`${name} (cut)`, run);
});

function memory(chunkBytes?: (available: number) => number): TransportFixture {
  const transport = memoryTransport(chunkBytes === undefined ? {} : { chunkBytes });
  return { listening: transport, dialling: () => transport };
}
