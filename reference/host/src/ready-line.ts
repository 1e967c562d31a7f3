/** The one line on stdout that says that a host serves, with where: `ready {"http":"http://127.0.0.1:8080"}`. */
export function printReadyLine(where: Readonly<Record<string, string>>): void {
  process.stdout.write(`ready ${JSON.stringify(where)}\n`);
}

/** What a ready line says, or undefined where `line` is another line. */
export function parseReadyLine(line: string): Record<string, string> | undefined {
  if (!line.startsWith("ready {")) return undefined;
  const parsed: unknown = JSON.parse(line.slice("ready ".length));
  if (typeof parsed !== "object" || parsed === null) return undefined;
  return Object.fromEntries(
    Object.entries(parsed).filter((entry): entry is [string, string] => typeof entry[1] === "string"),
  );
}
