import { describe, expect, it } from "vitest";
import { rangeQuery, daysOf, readRangeSearch, refreshEvery } from "./time-range";

const since = "2026-05-04T10:00:00.000Z";
const until = "2026-05-04T11:00:00.000Z";

describe("the time range in the address", () => {
  it.each([
    [{ range: "6h" }, { range: "6h" }],
    [{ range: "5y" }, { range: "1h" }],
    [{}, { range: "1h" }],
    [
      { since, until },
      { since, until },
    ],
    [{ since: until, until: since }, { range: "1h" }],
    [{ since, until: "tomorrow" }, { range: "1h" }],
    [{ since }, { range: "1h" }],
  ])("%j asks for %j", (search, wanted) => expect(rangeQuery(readRangeSearch(search), "1h")).toEqual(wanted));

  it("asks again only while it goes on", () => {
    expect(refreshEvery({ range: "15m" })).toBe(10_000);
    expect(refreshEvery({ range: "90d" })).toBe(60_000);
    expect(refreshEvery({ since, until })).toBe(false);
  });

  it("is held by whole days", () => {
    expect(daysOf({ range: "15m" }, 0)).toBe(1);
    expect(daysOf({ range: "90d" }, 0)).toBe(90);
    expect(daysOf({ since, until }, Date.parse(since) + 86_400_001)).toBe(2);
  });
});
