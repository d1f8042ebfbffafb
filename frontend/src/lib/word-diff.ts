/** A piece of two texts: in both, or in one only. */
export interface Piece {
  kind: "both" | "first" | "second";
  text: string;
}

/**
 * Maximum edits of the search. Beyond it, two texts count as different as a whole, because a result would take long and
 * show nothing.
 */
const MAX_EDITS = 800;

const SEGMENTER = new Intl.Segmenter(undefined, { granularity: "word" });
const ASCII = /^[\x21-\x7e]+$/;

/**
 * Splits text into words, runs of white space and other marks; in scripts without spaces, into words of the dictionary.
 */
export const words = (text: string): string[] =>
  (text.match(/\s+|\S+/g) ?? []).flatMap((part) => (part.trim() ? split(part) : [part]));

// Segmentation with a dictionary takes a hundred times as long as a pattern, and English needs none.
const split = (text: string): string[] =>
  ASCII.test(text)
    ? (text.match(/\w+(?:'\w+)*|\W/g) ?? [])
    : Array.from(SEGMENTER.segment(text), ({ segment }) => segment);

/**
 * The words of two texts as one sequence with the fewest pieces that are in one only: E. W. Myers, "An O(ND) Difference
 * Algorithm and Its Variations" (1986), greedy form. What both begin and end with is not searched.
 */
export function wordDiff(first: string, second: string): Piece[] {
  const [a, b] = [words(first), words(second)];
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  const changed = edits(a.slice(start, a.length - end), b.slice(start, b.length - end));
  const same = (from: number, to: number): Piece => ({ kind: "both", text: a.slice(from, to).join("") });
  return joined([same(0, start), ...changed, same(a.length - end, a.length)]);
}

function edits(a: string[], b: string[]): Piece[] {
  const limit = Math.min(a.length + b.length, MAX_EDITS);
  // How far into `a` the best path on each diagonal (position in a - position in b) has come. Diagonal k is at `k +
  // middle`.
  const middle = limit + 1;
  const reach = new Int32Array(2 * middle + 1);
  /** The initial state of each step: diagonal k is at `k + step + 1`. */
  const steps: Int32Array[] = [];
  for (let step = 0; step <= limit; step++) {
    steps.push(reach.slice(middle - step - 1, middle + step + 2));
    for (let k = -step; k <= step; k += 2) {
      const [below, above] = [reach[middle + k - 1]!, reach[middle + k + 1]!];
      let x = takesSecond(k, step, below, above) ? above : below + 1;
      while (x < a.length && x - k < b.length && a[x] === b[x - k]) x++;
      reach[middle + k] = x;
      if (x >= a.length && x - k >= b.length) return walkedBack(a, b, steps);
    }
  }
  return [
    { kind: "first", text: a.join("") },
    { kind: "second", text: b.join("") },
  ];
}

/** Returns whether the best path to diagonal k comes from the one above it, with a word of the second text. */
const takesSecond = (k: number, step: number, below: number, above: number) =>
  k === -step || (k !== step && below < above);

/** Walks the path back from the end of both texts. */
function walkedBack(a: string[], b: string[], steps: Int32Array[]): Piece[] {
  const pieces: Piece[] = [];
  let [x, y] = [a.length, b.length];
  for (let step = steps.length - 1; step > 0; step--) {
    const [k, at] = [x - y, x - y + step + 1];
    const [below, above] = [steps[step]![at - 1]!, steps[step]![at + 1]!];
    const second = takesSecond(k, step, below, above);
    const fromX = second ? above : below;
    const fromY = second ? fromX - k - 1 : fromX - k + 1;
    for (; x > fromX && y > fromY; x--, y--) pieces.push({ kind: "both", text: a[x - 1]! });
    pieces.push(second ? { kind: "second", text: b[fromY]! } : { kind: "first", text: a[fromX]! });
    [x, y] = [fromX, fromY];
  }
  for (; x > 0; x--) pieces.push({ kind: "both", text: a[x - 1]! });
  return pieces.reverse();
}

/** Joins neighbouring pieces of one kind; between words in both, pieces in one only are grouped by text. */
function joined(pieces: Piece[]): Piece[] {
  const merged: Piece[] = [];
  let first = "";
  let second = "";
  const flush = () => {
    if (first) merged.push({ kind: "first", text: first });
    if (second) merged.push({ kind: "second", text: second });
    first = second = "";
  };
  for (const { kind, text } of pieces) {
    if (kind === "first") first += text;
    else if (kind === "second") second += text;
    else if (text) {
      flush();
      const last = merged.at(-1);
      if (last?.kind === "both") last.text += text;
      else merged.push({ kind: "both", text });
    }
  }
  flush();
  return merged;
}
