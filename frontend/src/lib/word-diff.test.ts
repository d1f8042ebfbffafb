// @vitest-environment node
import { describe, expect, it } from "vitest";
import { type Piece, wordDiff, words } from "./word-diff";

const of = (pieces: Piece[], side: "first" | "second") =>
  pieces
    .filter(({ kind }) => kind === "both" || kind === side)
    .map(({ text }) => text)
    .join("");
const changed = (pieces: Piece[]) =>
  pieces.filter(({ kind }) => kind !== "both").reduce((sum, { text }) => sum + words(text).length, 0);

/** Returns the minimum number of changed words, by the quadratic table. */
function fewest(a: string[], b: string[]): number {
  const common = Array.from({ length: a.length + 1 }, () => new Array<number>(b.length + 1).fill(0));
  for (let x = 1; x <= a.length; x++)
    for (let y = 1; y <= b.length; y++)
      common[x]![y] =
        a[x - 1] === b[y - 1] ? common[x - 1]![y - 1]! + 1 : Math.max(common[x - 1]![y]!, common[x]![y - 1]!);
  return a.length + b.length - 2 * common[a.length]![b.length]!;
}

describe("the words in which two texts differ", () => {
  it("names them, and what is between them", () => {
    expect(wordDiff("The capital is Paris.", "The old capital is Lyon.")).toEqual([
      { kind: "both", text: "The " },
      { kind: "second", text: "old " },
      { kind: "both", text: "capital is " },
      { kind: "first", text: "Paris" },
      { kind: "second", text: "Lyon" },
      { kind: "both", text: "." },
    ]);
  });

  it.each([
    ["nothing and something", "", "a b"],
    ["something and nothing", "a b", ""],
    ["nothing and nothing", "", ""],
    ["equal texts", "🦜 same", "🦜 same"],
    ["a family of emoji", "👩‍👩‍👧 says hi", "👩‍👧 says hi"],
    ["right to left", "مرحبا بالعالم الكبير", "مرحبا يا عالم"],
    ["no spaces", "我喜欢吃苹果", "我喜欢吃香蕉"],
  ])("holds both texts whole: %s", (_, first, second) => {
    const pieces = wordDiff(first, second);
    expect([of(pieces, "first"), of(pieces, "second")]).toEqual([first, second]);
    if (first === second) expect(changed(pieces)).toBe(0);
  });

  it("is the shortest for any two texts", () => {
    let seed = 7;
    const random = (below: number) => (seed = (seed * 48271) % 2147483647) % below;
    for (let round = 0; round < 400; round++) {
      const [first, second] = [0, 1].map(() =>
        Array.from({ length: random(14) }, () => "abc"[random(3)]).join(" "),
      ) as [string, string];
      const pieces = wordDiff(first, second);
      expect([of(pieces, "first"), of(pieces, "second")]).toEqual([first, second]);
      expect(changed(pieces)).toBe(fewest(words(first), words(second)));
    }
  });

  it("gives up on what has nothing in common, soon", () => {
    const [first, second] = ["a", "b"].map((letter) =>
      Array.from({ length: 20_000 }, (_, index) => `${letter}${index}`).join("\n"),
    ) as [string, string];
    const began = performance.now();
    const pieces = wordDiff(first, second);
    expect(performance.now() - began).toBeLessThan(5000);
    expect([of(pieces, "first"), of(pieces, "second")]).toEqual([first, second]);
  });
});
