import { create } from "@bufbuild/protobuf";
import {
  DEFAULT_FLOW_LIMITS,
  NodeReadyRequestSchema,
  ProviderHealth,
  ProviderTunnelFrame_Kind as Kind,
  ProviderTunnelFrameSchema,
  RegisterRequestSchema,
  Session,
  WireError,
  type WireStream,
  realClock,
} from "@iop/wire";
import { tcp } from "@iop/wire/tcp";

import type { Stack } from "./stack.ts";

/** A Node whose gate knows of less room than the Edge believes in. */
export interface RefusingNode extends AsyncDisposable {
  /** Ids of the requests that it was asked to serve, in order. */
  readonly asked: readonly string[];
}

/** Becomes the Node of `stack`, refuses the first `refusals` requests and answers those that follow. */
export async function refusingNode(stack: Stack, refusals: number): Promise<RefusingNode> {
  const asked: string[] = [];
  const closed = Promise.withResolvers<void>();
  const session = new Session({
    connection: await tcp({ host: "127.0.0.1", port: stack.nodesPort }).dial({
      signal: AbortSignal.timeout(5_000),
    }),
    role: "node",
    clock: realClock,
    maxFrameBytes: 1024 * 1024,
    handlers: {
      message: () => {},
      opened: (stream, { value }) => {
        asked.push(value.requestId);
        if (asked.length <= refusals) send(stream, { kind: Kind.ERROR, errorCode: "capacity_exhausted" });
        else {
          send(stream, { kind: Kind.RESPONSE_START, status: 200 });
          send(stream, { kind: Kind.END });
        }
      },
      closed: () => closed.resolve(),
    },
  });
  const registration = create(RegisterRequestSchema, {
    token: stack.token,
    nodeName: "node-1",
    instanceId: "refusing",
    protocolVersion: 1,
    softwareVersion: "0.0.0",
  });
  const timeoutMs = 5_000;
  const { value: registered } = await session.request(
    { case: "registerRequest", value: registration },
    "registerResponse",
    { timeoutMs },
  );
  if (!registered.accepted) throw new Error(registered.reason);
  session.agree({ ...DEFAULT_FLOW_LIMITS, ...registered.limits });
  const value = create(NodeReadyRequestSchema, {
    nodeId: "node-1",
    configRevision: registered.config?.revision ?? 0n,
    providers: [{ id: "p1", health: ProviderHealth.OK }],
  });
  const { value: ready } = await session.request({ case: "nodeReadyRequest", value }, "nodeReadyResponse", {
    timeoutMs,
  });
  if (!ready.ready) throw new Error(ready.reason);
  return {
    asked,
    [Symbol.asyncDispose]: () => {
      session.destroy(new WireError("closed", "the test is over"));
      return closed.promise;
    },
  };
}

function send(
  stream: WireStream,
  frame: { readonly kind: Kind; readonly status?: number; readonly errorCode?: string },
): void {
  stream.send({ case: "providerTunnelFrame", value: create(ProviderTunnelFrameSchema, frame) });
}
