/** What to do with a running Edge: lines that can be copied into a POSIX shell. */
export function howToUse(edge: {
  readonly http: string;
  readonly admin: string;
  readonly models: readonly string[];
}): string {
  const body = {
    model: edge.models[0],
    stream: true,
    messages: [{ role: "user", content: "Say hello." }],
  };
  return `
Ready. OpenAI-compatible endpoint: ${edge.http}/v1

List the models:

  curl ${edge.http}/v1/models

Ask one, streaming:

  curl -N ${edge.http}/v1/chat/completions -H 'content-type: application/json' -d ${quoted(JSON.stringify(body))}

See what it does: open the status page in a browser, or watch it here.

  ${edge.admin}/
  npx iop status --watch --admin ${edge.admin}

Ctrl-C stops all of it.`;
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", String.raw`'\''`)}'`;
}
