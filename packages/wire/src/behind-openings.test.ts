import { create } from "@bufbuild/protobuf";
import { expect, test } from "vitest";

import { DEFAULT_FLOW_LIMITS } from "./flow-limits.ts";
import {
  ConfigRefreshRequestSchema,
  NodeReadyResponseSchema,
  ProviderTunnelRequestSchema,
} from "./gen/iop/runtime_pb.ts";
import type { MemoryTransport } from "./memory.ts";
import { memoryTransport } from "./memory.ts";
import type { OpeningMessage, SessionMessage } from "./message.ts";
import { Session } from "./session.ts";
import type { VirtualClock } from "./virtual-clock.ts";
import { createVirtualClock } from "./virtual-clock.ts";
import type { WireStream } from "./wire-stream.ts";

interface Link {
  readonly clock: VirtualClock;
  readonly transport: MemoryTransport;
  readonly edge: Session;
  /** What the Node has heard: `opened ID` or the case of a message. */
  readonly heard: string[];
  readonly open: (bodyBytes?: number) => WireStream;
}

async function connect(): Promise<Link> {
  const clock = createVirtualClock();
  const transport = memoryTransport({ clock });
  const heard: string[] = [];
  const ignore = { message: () => {}, closed: () => {} };
  const accepted = Promise.withResolvers<Session>();
  await transport.listen({
    accept: (connection) =>
      accepted.resolve(
        new Session({ connection, role: "edge", clock, handlers: ignore, maxFrameBytes: 65_536 }),
      ),
  });
  const node = new Session({
    connection: await transport.dial({ signal: new AbortController().signal }),
    role: "node",
    clock,
    maxFrameBytes: 1_048_576,
    handlers: {
      ...ignore,
      message: (message) => void heard.push(message.case),
      opened: (stream) => void heard.push(`opened ${stream.id}`),
    },
  });
  const edge = await accepted.promise;
  for (const side of [edge, node]) side.agree(DEFAULT_FLOW_LIMITS);
  return {
    clock,
    transport,
    edge,
    heard,
    open: (bodyBytes = 0) => edge.open(opening(), [new Uint8Array(bodyBytes)], {}),
  };
}

function opening(): OpeningMessage {
  return {
    case: "providerTunnelRequest",
    value: create(ProviderTunnelRequestSchema, { operation: "x" }),
  };
}

function refresh(revision: bigint): SessionMessage {
  return {
    case: "configRefreshRequest",
    value: create(ConfigRefreshRequestSchema, { config: { revision } }),
  };
}

const other: SessionMessage = { case: "nodeReadyResponse", value: create(NodeReadyResponseSchema) };

test("with nothing that waits it leaves at once", async () => {
  const { clock, edge, heard, open } = await connect();
  open();
  await clock.settle();
  edge.sendBehindOpenings(refresh(1n));
  open();
  await clock.settle();
  expect(heard).toEqual(["opened 1", "configRefreshRequest", "opened 2"]);
});

test("the peer hears it behind every stream that was open by then, and ahead of their bodies' end", async () => {
  const { clock, edge, heard, open } = await connect();
  // More than the connection takes, all in one turn: the openings take turns with the bodies.
  for (let index = 0; index < 20; index++) open(200_000);
  edge.sendBehindOpenings(refresh(1n));
  edge.sendBehindOpenings(refresh(2n));
  edge.send(other);
  await clock.settle();
  const opened = Array.from({ length: 20 }, (_, index) => `opened ${index + 1}`);
  expect(heard).toEqual(["nodeReadyResponse", ...opened, "configRefreshRequest", "configRefreshRequest"]);
});

test("a stream that will never be opened is not waited for", async () => {
  const { clock, edge, heard, open } = await connect();
  const streams = [open(), open()];
  edge.sendBehindOpenings(refresh(1n));
  for (const stream of streams) stream.cancel("withdrawn");
  await clock.settle();
  expect(heard).toEqual(["configRefreshRequest"]);
});

test("with the session over it is dropped", async () => {
  const { clock, edge, heard, open, transport } = await connect();
  open();
  edge.sendBehindOpenings(refresh(1n));
  transport.links[0]?.cut();
  await clock.settle();
  edge.sendBehindOpenings(refresh(2n));
  await clock.settle();
  expect(heard).toEqual([]);
});
