/** 32-bit FNV-1a over UTF-16 units: the seed that a text stands for. Not for anything that must be hard to guess. */
export function seedOf(text: string): number {
  let hash = 0x811c9dc5;
  for (let index = 0; index < text.length; index++) {
    hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193);
  }
  return hash >>> 0;
}

/** Numbers from 0 to below `bound` that only depend on `seed` (xorshift32). */
export function numbersFrom(seed: number): (bound: number) => number {
  // 0 is the one state that xorshift never leaves.
  let state = seed >>> 0 || 0x9e3779b9;
  return (bound) => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % bound;
  };
}

const WORDS =
  "the a small quiet river runs under every bridge and light falls on old stone while people talk of weather bread trains letters winter maps gardens clocks paper glass salt rain morning evening distance answer question reason careful simple round warm cold early late between across because until after before slowly again together alone almost always perhaps indeed therefore however meanwhile nobody somebody everything naïve café 東京 🙂".split(
    " ",
  );

/** `count` tokens, each a word with what precedes it, that read as sentences of 6 to 13 words when joined. */
export function tokensFrom(seed: number, count: number): string[] {
  const next = numbersFrom(seed);
  const tokens: string[] = [];
  let left = 0;
  for (let index = 0; index < count; index++) {
    const word = WORDS[next(WORDS.length)] ?? "";
    const starts = left === 0;
    if (starts) left = 6 + next(8);
    left -= 1;
    const ends = left === 0 || index === count - 1;
    const spelled = starts ? word.charAt(0).toUpperCase() + word.slice(1) : word;
    tokens.push(`${index === 0 ? "" : " "}${spelled}${ends ? "." : ""}`);
  }
  return tokens;
}
