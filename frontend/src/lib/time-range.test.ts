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
    const noon = Date.parse("2028-02-29T12:00:00Z");
    expect(daysOf({ range: "15m" }, noon)).toBe(1);
    expect(daysOf({ range: "15m" }, Date.parse("2028-03-01T00:05:00Z"))).toBe(2);
    expect(daysOf({ range: "1d" }, noon)).toBe(2);
    expect(daysOf({ range: "90d" }, noon)).toBe(91);
    expect(daysOf({ since, until }, Date.parse(since))).toBe(1);
    expect(daysOf({ since, until }, Date.parse(since) + 86_400_001)).toBe(2);
    expect(daysOf({ since, until }, Date.parse("2029-05-04T10:00:00Z"))).toBe(366);
  });
});
