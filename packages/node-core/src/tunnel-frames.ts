import type { HeaderList, TunnelResponse, Usage } from "@iop/agent-runtime";
import type { Header, ProviderTunnelFrame, StreamMessage, Usage as WireUsage } from "@iop/wire";
import { ProviderTunnelFrame_Kind as Kind } from "@iop/wire";

/** Longest text of an error, in characters: a terminal frame holds 16 KiB, a character up to 3 bytes. */
const ERROR_TEXT_LENGTH = 2_048;
const ERROR_CODE_LENGTH = 64;
const NO_BYTES = new Uint8Array(0);
const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;

/** RESPONSE_START: status and headers as the provider sent them. */
export function startFrame(response: TunnelResponse): StreamMessage {
  const headers: Header[] = response.headers.map(([name, value]) => ({
    $typeName: "iop.Header",
    name,
    value,
  }));
  return frame(Kind.RESPONSE_START, { status: response.status, headers });
}

/** USAGE; undefined where the provider reported nothing. */
export function usageFrame(usage: Usage | undefined): StreamMessage | undefined {
  if (usage === undefined) return undefined;
  const wire: WireUsage = { $typeName: "iop.Usage", partial: usage.partial === true };
  const { inputTokens, outputTokens, reasoningTokens, cachedInputTokens } = usage;
  if (isCount(inputTokens)) wire.inputTokens = BigInt(inputTokens);
  if (isCount(outputTokens)) wire.outputTokens = BigInt(outputTokens);
  if (isCount(reasoningTokens)) wire.reasoningTokens = BigInt(reasoningTokens);
  if (isCount(cachedInputTokens)) wire.cachedInputTokens = BigInt(cachedInputTokens);
  return frame(Kind.USAGE, { usage: wire });
}

/** END. */
export function endFrame(): StreamMessage {
  return frame(Kind.END, {});
}

/** ERROR; code and text are cut to what a terminal holds. */
export function errorFrame(code: string, text: string): StreamMessage {
  return frame(Kind.ERROR, {
    errorCode: code.slice(0, ERROR_CODE_LENGTH).toWellFormed(),
    errorMessage: text.slice(0, ERROR_TEXT_LENGTH).toWellFormed(),
  });
}

/** Undefined where the head may be sent, else what is wrong with it; never a header's value. */
export function headFault(response: TunnelResponse): string | undefined {
  const { status } = response;
  if (!Number.isInteger(status) || status < 200 || status > 599) return `status ${status}`;
  return headersFault(response.headers);
}

/** Undefined where every header may stand in an HTTP message, else what is wrong; never a header's value. */
export function headersFault(headers: HeaderList): string | undefined {
  for (const [name, value] of headers) {
    if (!TOKEN.test(name)) return "a header's name is not a token";
    if (value.includes("\r") || value.includes("\n") || value.includes("\0"))
      return `header ${name} holds a line break or NUL`;
  }
  return undefined;
}

function frame(kind: Kind, members: Partial<ProviderTunnelFrame>): StreamMessage {
  return {
    case: "providerTunnelFrame",
    value: {
      $typeName: "iop.ProviderTunnelFrame",
      sequence: 0,
      kind,
      status: 0,
      headers: [],
      metadata: {},
      errorCode: "",
      errorMessage: "",
      body: NO_BYTES,
      ...members,
    },
  };
}

function isCount(value: number | undefined): value is number {
  return value !== undefined && Number.isSafeInteger(value) && value >= 0;
}
