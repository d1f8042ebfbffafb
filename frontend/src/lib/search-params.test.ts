import { describe, expect, it } from "vitest";
import { flag, oneOf, pageIn, text, whole } from "./search-params";

describe("what an address holds", () => {
  it("is text, also where somebody typed a number", () => {
    expect([text("a"), text(12), text(""), text(null), text({ a: 1 })]).toEqual([
      "a",
      "12",
      undefined,
      undefined,
      undefined,
    ]);
  });

  it("is a page from 1 on, a whole number, a known word or nothing", () => {
    expect([pageIn(2), pageIn(0), pageIn(-1), pageIn(1.5), pageIn("2"), pageIn(Number.NaN), pageIn(1e9)]).toEqual([
      2,
      undefined,
      undefined,
      undefined,
      undefined,
      undefined,
      undefined,
    ]);
    expect([whole(0), whole(-1), whole("7"), whole(2e9), whole(3e9)]).toEqual([
      0,
      undefined,
      undefined,
      2e9,
      undefined,
    ]);
    expect([oneOf("a", ["a", "b"]), oneOf("c", ["a", "b"]), oneOf(7, [7])]).toEqual(["a", undefined, 7]);
    expect([flag(true), flag(false), flag("true")]).toEqual([true, undefined, undefined]);
  });
});
