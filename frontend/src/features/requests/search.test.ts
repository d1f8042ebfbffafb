import { expect, it } from "vitest";
import { countFilters, isFiltered, queryParams, readRequestsSearch } from "./search";

const NOW = Date.parse("2026-05-04T10:20:30Z");

it("treats invalid parameters of an address as missing", () => {
  const typed = {
    outcome: "lost",
    last: "2h",
    min_ms: -1,
    min_tokens: 1.5,
    version: "x",
    paused: "yes",
    model: "",
    key: {},
  };
  expect(Object.values(readRequestsSearch(typed)).filter((value) => value !== undefined)).toEqual([]);
  expect(isFiltered(readRequestsSearch(typed))).toBe(false);
});

it("asks the server for its parameters only, and takes a number for the text that it may be", () => {
  const search = {
    ...readRequestsSearch({ model: 7, min_ms: 0, open: "req_1", view: "refusals", paused: true }),
    page: 3,
  };
  const { model, min_ms, ...others } = queryParams(search, NOW);
  expect([model, min_ms]).toEqual(["7", 0]);
  expect(Object.values(others).filter((value) => value !== undefined)).toEqual([]);
});

it("begins a range that ends now at a whole minute, whatever `since` says", () => {
  const since = "2026-01-01T00:00:00Z";
  expect(queryParams({ last: "1h", since }, NOW).since).toBe("2026-05-04T09:20:00.000Z");
  expect(queryParams({ since }, NOW).since).toBe(since);
});

it("counts filters without the search for a model or a request", () => {
  expect(countFilters(readRequestsSearch({ id: "req_1", model: "m", key: "console", outcome: "failed" }))).toBe(2);
});
