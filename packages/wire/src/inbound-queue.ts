import { BodyBuffer, retain } from "./body-buffer.ts";
import { ReceiveCredit } from "./credit.ts";
import { ProviderTunnelFrame_Kind as Kind } from "./gen/iop/runtime_pb.ts";
import { tunnelBody } from "./hot-codec.ts";
import type { StreamMessage } from "./message.ts";
import { WireError } from "./wire-error.ts";

type Result = IteratorResult<StreamMessage, undefined>;

interface Inbound {
  readonly message: StreamMessage;
  readonly body: BodyBuffer | undefined;
  charge: number;
}

const DONE: Result = { done: true, value: undefined };

/**
 * What has come on one stream and has not been taken by its one reader. Asking for the next message says
 * that the one before has been taken; that is what makes its credit free.
 */
export class InboundQueue {
  readonly #credit: ReceiveCredit;
  /** Called when a grant of credit is due. */
  readonly #grantDue: () => void;
  #items: Inbound[] = [];
  #taken = 0;
  #waiter: PromiseWithResolvers<Result> | undefined;
  #failure: WireError | undefined;
  #ended = false;

  constructor(windowBytes: number, grantDue: () => void) {
    this.#credit = new ReceiveCredit(windowBytes, 2);
    this.#grantDue = grantDue;
  }

  /** Counts `bytes` that came under credit; false where the peer had none left. */
  receive(bytes: number): boolean {
    return this.#credit.receive(bytes);
  }

  /** The limit to send in a StreamCredit. */
  grant(): number {
    return this.#credit.grant();
  }

  /** A message for the reader; `charge` is what of it came under credit. */
  deliver(message: StreamMessage, charge: number): void {
    const waiter = this.#waiter;
    if (waiter !== undefined) {
      this.#waiter = undefined;
      this.#taken = charge;
      waiter.resolve({ done: false, value: message });
      return;
    }
    if (message.case === "providerTunnelFrame" && message.value.kind === Kind.BODY) {
      const last = this.#items.at(-1);
      if (last?.body?.append(message.value.body) === true) last.charge += charge;
      else this.#items.push({ message, body: new BodyBuffer(message.value.body, true), charge });
      return;
    }
    if (message.case === "part") message.value.data = retain(message.value.data);
    this.#items.push({ message, body: undefined, charge });
  }

  /** The next message, the end, or what the stream failed with (once; then the end). */
  next(): Promise<Result> {
    if (this.#taken > 0) {
      const taken = this.#taken;
      this.#taken = 0;
      if (this.#credit.release(taken) && !this.#ended) this.#grantDue();
    }
    const item = this.#items.shift();
    if (item !== undefined) {
      this.#taken = item.charge;
      return Promise.resolve({ done: false, value: messageOf(item) });
    }
    const failure = this.#failure;
    if (failure !== undefined) {
      this.#failure = undefined;
      return Promise.reject(failure);
    }
    if (this.#ended) return Promise.resolve(DONE);
    if (this.#waiter !== undefined) throw new WireError("invalid_argument", "a stream has one reader");
    this.#waiter = Promise.withResolvers<Result>();
    return this.#waiter.promise;
  }

  /** Nothing more comes; what is here is still read. Idempotent. */
  end(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#waiter?.resolve(DONE);
    this.#waiter = undefined;
  }

  /** Nothing more is read; the reader gets `error`, once. Nothing after the end. */
  fail(error: WireError): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#items = [];
    this.#taken = 0;
    if (this.#waiter === undefined) this.#failure = error;
    else this.#waiter.reject(error);
    this.#waiter = undefined;
  }
}

function messageOf(item: Inbound): StreamMessage {
  if (item.body === undefined || item.message.case !== "providerTunnelFrame") return item.message;
  return { case: "providerTunnelFrame", value: tunnelBody(item.message.value.sequence, item.body.view) };
}
