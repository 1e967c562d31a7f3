export { openAiCompat } from "./open-ai-compat.ts";
