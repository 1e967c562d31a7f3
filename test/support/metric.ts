import type { Stack } from "./stack.ts";

/** A metric of the Edge, summed over those of its samples whose labels contain `label`. */
export async function metric(stack: Pick<Stack, "admin">, name: string, label = ""): Promise<number> {
  const text = await (await fetch(`${stack.admin}/metrics`)).text();
  return text
    .split("\n")
    .filter((line) => line.startsWith(`${name}{`) && line.includes(label))
    .reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(" "))), 0);
}
