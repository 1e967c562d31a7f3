import type { ProfileDriver, Usage } from "@iop/agent-runtime";
import { createParser, type EventSourceParser } from "eventsource-parser";
import { createByteSearch } from "./byte-search.ts";
import { readChatUsage } from "./chat-usage.ts";
import { createSseSplitter, type SseSplitter } from "./sse-splitter.ts";

/** Most of a JSON body, or of one event, that is kept to be read: 8 MiB. Beyond it that part is not observed. */
const MAX_KEPT_BYTES = 8 * 1024 * 1024;

export interface UsageObserverOptions {
  /** The response's `content-type`. `text/event-stream` and `application/json` are observed, others not. */
  readonly contentType: string | undefined;
  /** Protocol of the response. Only `openai_chat` is observed. */
  readonly driver: ProfileDriver;
}

/**
 * Watches a response body pass and picks up the token counts that the provider reports in it. Only looks:
 * it never changes a chunk and never throws. Give it the plain bytes, not those under a `content-encoding`.
 */
export interface UsageObserver {
  /** The next chunk. It may be kept by reference until `end`, so it must not be changed later. */
  observe(chunk: Uint8Array): void;
  /** The body is over; `clean` false where it was cut before its end. Later calls change nothing. */
  end(clean: boolean): void;
  /** The latest counts; undefined where none was reported (yet). */
  usage(): Usage | undefined;
}

/** Makes an observer for one response body. */
export function createUsageObserver(options: UsageObserverOptions): UsageObserver {
  if (options.driver !== "openai_chat") return unobserved;
  const mediaType = options.contentType?.split(";", 1)[0]?.trim().toLowerCase();
  if (mediaType === "text/event-stream") return new StreamObserver();
  if (mediaType === "application/json") return new BodyObserver();
  return unobserved;
}

const unobserved: UsageObserver = {
  observe: () => {},
  end: () => {},
  usage: () => undefined,
};

/** The last counts win: they are totals, never increments. */
class Counts {
  #usage: Usage | undefined;
  #timingsCached: number | undefined;
  #cut = false;

  /** Reads JSON text; anything else is passed over. */
  read(json: string): void {
    const report = readChatUsage(parse(json));
    this.#usage = report.usage ?? this.#usage;
    this.#timingsCached = report.timingsCached ?? this.#timingsCached;
  }

  cut(): void {
    this.#cut = true;
  }

  latest(): Usage | undefined {
    const cached = this.#usage?.cachedInputTokens ?? this.#timingsCached;
    if (this.#usage === undefined && cached === undefined) return undefined;
    return {
      ...this.#usage,
      ...(cached !== undefined && { cachedInputTokens: cached }),
      ...(this.#cut && { partial: true }),
    };
  }
}

const findUsage = createByteSearch('"usage"');
const findTimings = createByteSearch('"timings"');

class StreamObserver implements UsageObserver {
  readonly #counts = new Counts();
  readonly #splitter: SseSplitter;
  readonly #parser: EventSourceParser;
  readonly #decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  #over = false;

  constructor() {
    this.#splitter = createSseSplitter({
      maxEventBytes: MAX_KEPT_BYTES,
      onEvent: (event) => this.#read(event),
    });
    this.#parser = createParser({ onEvent: ({ data }) => this.#counts.read(data) });
  }

  observe(chunk: Uint8Array): void {
    if (!this.#over) this.#splitter.push(chunk);
  }

  end(clean: boolean): void {
    if (this.#over) return;
    this.#over = true;
    // Some servers leave out the last blank line; half an event is no JSON and is passed over.
    const tail = this.#splitter.end();
    if (tail !== undefined) this.#read(tail);
    if (!clean) this.#counts.cut();
  }

  usage(): Usage | undefined {
    return this.#counts.latest();
  }

  #read(event: Uint8Array): void {
    if (mayReport(event)) this.#parser.feed(`${this.#decoder.decode(event)}\n\n`);
  }
}

class BodyObserver implements UsageObserver {
  readonly #counts = new Counts();
  #chunks: Uint8Array[] = [];
  #length = 0;
  #over = false;

  observe(chunk: Uint8Array): void {
    if (this.#over) return;
    this.#length += chunk.length;
    if (this.#length <= MAX_KEPT_BYTES) this.#chunks.push(chunk);
    else this.#chunks = [];
  }

  end(clean: boolean): void {
    if (this.#over) return;
    this.#over = true;
    const chunks = this.#chunks;
    this.#chunks = [];
    const decoder = new TextDecoder();
    const pieces = chunks.map((chunk) => decoder.decode(chunk, { stream: true }));
    this.#counts.read(pieces.join("") + decoder.decode());
    if (!clean) this.#counts.cut();
  }

  usage(): Usage | undefined {
    return this.#counts.latest();
  }
}

/** Whether the bytes can hold counts. With `include_usage` every chunk says `"usage":null`, which is none. */
function mayReport(event: Uint8Array): boolean {
  let at = findUsage(event);
  while (at !== -1) {
    let next = at + '"usage"'.length;
    while (event[next] === 0x3a || event[next] === 0x20) next++;
    if (event[next] !== 0x6e) return true;
    at = findUsage(event, next);
  }
  return findTimings(event) !== -1;
}

function parse(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    return undefined;
  }
}
