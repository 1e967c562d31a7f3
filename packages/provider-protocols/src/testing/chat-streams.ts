import type { Usage } from "@iop/agent-runtime";

/** A response body in the shape that a server sends, and the counts that it reports. */
export interface ChatFixture {
  readonly name: string;
  readonly body: string;
  readonly usage: Usage | undefined;
}

function chunkHead(id: string, model: string): string {
  return `"id":"${id}","object":"chat.completion.chunk","created":1785000000,"model":"${model}"`;
}

function choice(delta: string, finish = "null"): string {
  return `"choices":[{"index":0,"delta":${delta},"logprobs":null,"finish_reason":${finish}}]`;
}

function lines(payloads: readonly string[], lineEnd = "\n"): string {
  return payloads
    .map((payload) => (payload.startsWith(":") ? payload : `data: ${payload}`) + lineEnd + lineEnd)
    .join("");
}

const openai = chunkHead("chatcmpl-Bx1", "gpt-5.2");
const vllm = chunkHead("chatcmpl-9f0c", "Qwen/Qwen3-8B");
const llama = chunkHead("chatcmpl-Zk7", "gpt-oss-20b");
const deepseek = chunkHead("8c1e", "deepseek-reasoner");
const openrouter = `"id":"gen-1785-a","provider":"Novita","object":"chat.completion.chunk","created":1785000000,"model":"z/glm"`;
const groq = chunkHead("chatcmpl-54e", "llama-3.3-70b");

export const chatStreams: readonly ChatFixture[] = [
  {
    name: "OpenAI, include_usage",
    body: lines([
      `{${openai},"service_tier":"default",${choice('{"role":"assistant","content":"","refusal":null}')},"usage":null,"obfuscation":"aB3"}`,
      `{${openai},${choice('{"content":"The \\"usage\\": 北京 🙂"}')},"usage":null,"obfuscation":"q"}`,
      `{${openai},${choice("{}", '"stop"')},"usage":null,"obfuscation":""}`,
      `{${openai},"choices":[],"usage":{"prompt_tokens":1214,"completion_tokens":305,"total_tokens":1519,"prompt_tokens_details":{"cached_tokens":1024,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":256,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}},"obfuscation":"xY"}`,
      "[DONE]",
    ]),
    usage: { inputTokens: 1214, outputTokens: 305, reasoningTokens: 256, cachedInputTokens: 1024 },
  },
  {
    name: "OpenAI, no usage asked for",
    body: lines([
      `{${openai},${choice('{"role":"assistant","content":"usage"}')}}`,
      `{${openai},${choice("{}", '"stop"')}}`,
      "[DONE]",
    ]),
    usage: undefined,
  },
  {
    name: "vLLM, without details",
    body: lines([
      `{${vllm},${choice('{"role":"assistant","content":""}')}}`,
      `{${vllm},${choice('{"content":"Hi"}', '"stop"')},"stop_reason":null}`,
      `{${vllm},"choices":[],"usage":{"prompt_tokens":12,"total_tokens":17,"completion_tokens":5}}`,
      "[DONE]",
    ]),
    usage: { inputTokens: 12, outputTokens: 5 },
  },
  {
    name: "vLLM, continuous usage, reasoning and cached",
    body: lines([
      `{${vllm},${choice('{"role":"assistant","content":""}')},"usage":{"prompt_tokens":900,"total_tokens":900,"completion_tokens":0}}`,
      `{${vllm},${choice('{"reasoning":"Hmm"}')},"usage":{"prompt_tokens":900,"total_tokens":901,"completion_tokens":1}}`,
      `{${vllm},${choice('{"content":"4"}', '"stop"')},"usage":{"prompt_tokens":900,"total_tokens":902,"completion_tokens":2}}`,
      `{${vllm},"choices":[],"usage":{"prompt_tokens":900,"total_tokens":902,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":0,"created_cache_tokens":16},"completion_tokens_details":{"reasoning_tokens":1}}}`,
      "[DONE]",
    ]),
    usage: { inputTokens: 900, outputTokens: 2, reasoningTokens: 1, cachedInputTokens: 0 },
  },
  {
    name: "llama.cpp, cached count in timings",
    body: lines([
      ":",
      `{${llama},"system_fingerprint":"b6000",${choice('{"role":"assistant","content":null}')}}`,
      `{${llama},${choice('{"content":"Hello"}')}}`,
      `{${llama},${choice("{}", '"length"')}}`,
      `{${llama},"choices":[],"usage":{"completion_tokens":8,"prompt_tokens":71,"total_tokens":79},"timings":{"cache_n":60,"prompt_n":11,"prompt_ms":30.5,"predicted_n":8,"predicted_ms":120.25}}`,
      "[DONE]",
    ]),
    usage: { inputTokens: 71, outputTokens: 8, cachedInputTokens: 60 },
  },
  {
    name: "DeepSeek",
    body: lines([
      ": keep-alive",
      `{${deepseek},${choice('{"role":"assistant","content":null,"reasoning_content":"Let"}')},"usage":null}`,
      ": keep-alive",
      `{${deepseek},${choice('{"content":"42","reasoning_content":null}')},"usage":null}`,
      `{${deepseek},${choice('{"content":""}', '"stop"')},"usage":{"prompt_tokens":640,"completion_tokens":90,"total_tokens":730,"prompt_tokens_details":null,"completion_tokens_details":{"reasoning_tokens":80},"prompt_cache_hit_tokens":576,"prompt_cache_miss_tokens":64}}`,
      "[DONE]",
    ]),
    usage: { inputTokens: 640, outputTokens: 90, reasoningTokens: 80, cachedInputTokens: 576 },
  },
  {
    name: "OpenRouter, CRLF, usage beside a choice",
    body: lines(
      [
        ": OPENROUTER PROCESSING",
        `{${openrouter},${choice('{"role":"assistant","content":"Hi","reasoning":null}')}}`,
        `{${openrouter},${choice('{"role":"assistant","content":""}', '"stop"')}}`,
        `{${openrouter},${choice('{"role":"assistant","content":""}')},"usage":{"prompt_tokens":31,"completion_tokens":7,"total_tokens":38,"cost":0.000041,"is_byok":false,"prompt_tokens_details":{"cached_tokens":16,"audio_tokens":0},"cost_details":{"upstream_inference_cost":null},"completion_tokens_details":{"reasoning_tokens":0}}}`,
        "[DONE]",
      ],
      "\r\n",
    ),
    usage: { inputTokens: 31, outputTokens: 7, reasoningTokens: 0, cachedInputTokens: 16 },
  },
  {
    name: "Groq",
    body: lines([
      `{${groq},"system_fingerprint":"fp_1",${choice('{"role":"assistant","content":""}')},"x_groq":{"id":"req_01"}}`,
      `{${groq},${choice('{"content":"Hey"}')}}`,
      `{${groq},${choice("{}", '"stop"')},"x_groq":{"id":"req_01","usage":{"queue_time":0.05,"prompt_tokens":40,"prompt_time":0.002,"completion_tokens":3,"completion_time":0.01,"total_tokens":43}}}`,
      "[DONE]",
    ]),
    usage: { inputTokens: 40, outputTokens: 3 },
  },
  {
    name: "Moonshot, CR, usage inside the choice",
    body: lines(
      [
        `{${openai},"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}`,
        `{${openai},"choices":[{"index":0,"delta":{},"finish_reason":"stop","usage":{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13}}]}`,
        "[DONE]",
      ],
      "\r",
    ),
    usage: { inputTokens: 9, outputTokens: 4 },
  },
  {
    name: "zeros on every chunk until the end, last event without blank line",
    body:
      lines([
        `{${openai},${choice('{"content":"Hi"}')},"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}`,
      ]) +
      `id: 7\ndata:{${openai},${choice("{}", '"stop"')},\ndata:"usage" :\ndata: {"prompt_tokens":5,"completion_tokens":2}}`,
    usage: { inputTokens: 5, outputTokens: 2 },
  },
];

export const chatBodies: readonly ChatFixture[] = [
  {
    name: "OpenAI",
    body: `{\n  "id": "chatcmpl-Bx2",\n  "object": "chat.completion",\n  "choices": [{"index": 0, "message": {"role": "assistant", "content": "Größe 🙂"}, "finish_reason": "stop"}],\n  "usage": {"prompt_tokens": 19, "completion_tokens": 10, "total_tokens": 29, "prompt_tokens_details": {"cached_tokens": 0}, "completion_tokens_details": {"reasoning_tokens": 0}}\n}\n`,
    usage: { inputTokens: 19, outputTokens: 10, reasoningTokens: 0, cachedInputTokens: 0 },
  },
  {
    name: "DeepSeek, after blank lines sent while queued",
    body: '\n\n\n{"id":"x","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1,"prompt_cache_hit_tokens":0}}',
    usage: { inputTokens: 3, outputTokens: 1, cachedInputTokens: 0 },
  },
  {
    name: "llama.cpp",
    body: '{"choices":[],"usage":{"completion_tokens":8,"prompt_tokens":71},"timings":{"cache_n":60,"prompt_n":11}}',
    usage: { inputTokens: 71, outputTokens: 8, cachedInputTokens: 60 },
  },
  {
    name: "embeddings",
    body: '{"object":"list","data":[{"embedding":[0.1,-2e-3]}],"usage":{"prompt_tokens":8,"total_tokens":8}}',
    usage: { inputTokens: 8 },
  },
  {
    name: "an error",
    body: '{"error":{"message":"no","type":"invalid_request_error","param":null,"code":null}}',
    usage: undefined,
  },
];
