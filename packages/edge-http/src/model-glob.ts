/**
 * True if `name` matches `glob`, in which `*` stands for any run of characters and nothing else is
 * special. Each piece is sought once, leftmost first: no pattern makes it backtrack.
 */
export function matchesGlob(glob: string, name: string): boolean {
  const pieces = glob.split("*");
  const first = pieces[0] ?? "";
  const last = pieces[pieces.length - 1] ?? "";
  if (pieces.length === 1) return glob === name;
  const end = name.length - last.length;
  if (end < first.length || !name.startsWith(first) || !name.endsWith(last)) return false;
  let at = first.length;
  for (const piece of pieces.slice(1, -1)) {
    const found = name.indexOf(piece, at);
    if (found < 0 || found + piece.length > end) return false;
    at = found + piece.length;
  }
  return true;
}
