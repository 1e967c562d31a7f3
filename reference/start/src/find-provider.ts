/** A model server that somebody runs on this machine. */
export interface FoundProvider {
  readonly name: string;
  readonly url: string;
  readonly models: readonly string[];
}

/** Where model servers listen unless they are told otherwise. */
const USUAL: ReadonlyArray<{ readonly name: string; readonly port: number }> = [
  { name: "Ollama", port: 11434 },
  { name: "vLLM", port: 8000 },
  { name: "llama.cpp", port: 8080 },
  { name: "LM Studio", port: 1234 },
];
/** A server on this machine that takes longer than this to list its models is not looked for, in milliseconds. */
const ANSWER_MS = 500;
/** A catalog of more would only be noise on a first try. */
const MAX_MODELS = 20;

/** The first that answers with at least one model, in the order above; they are asked all at once. */
export async function findProvider(
  candidates: ReadonlyArray<{ readonly name: string; readonly port: number }> = USUAL,
): Promise<FoundProvider | undefined> {
  const found = await Promise.all(
    candidates.map(async ({ name, port }) => {
      const url = `http://127.0.0.1:${port}`;
      const models = await modelsOf(url);
      return models.length === 0 ? undefined : { name, url, models };
    }),
  );
  return found.find((provider) => provider !== undefined);
}

/** Empty for whatever is not a model server. */
async function modelsOf(url: string): Promise<string[]> {
  try {
    const response = await fetch(`${url}/v1/models`, {
      signal: AbortSignal.timeout(ANSWER_MS),
      redirect: "error",
    });
    const body: unknown = response.ok ? await response.json() : undefined;
    if (!response.ok) await response.body?.cancel();
    if (typeof body !== "object" || body === null || !("data" in body) || !Array.isArray(body.data))
      return [];
    const models: readonly unknown[] = body.data;
    return models
      .map((model: unknown) =>
        typeof model === "object" && model !== null && "id" in model ? model.id : undefined,
      )
      .filter((id): id is string => typeof id === "string" && id !== "" && id.length <= 256)
      .slice(0, MAX_MODELS);
  } catch {
    return [];
  }
}
