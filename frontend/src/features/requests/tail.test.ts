// @vitest-environment node
import { describe, expect, it } from "vitest";
import type { RequestRecord } from "@/api/types";
import { MAX_LISTED, type Pages, withNewest } from "./tail";

const row = (id: number) => ({ id: `req_${id}` }) as RequestRecord;
const rows = (from: number, to: number) => Array.from({ length: from - to + 1 }, (_, index) => row(from - index));
const page = (from: number, to: number, next_cursor: string | null = `c${to}`) => ({
  results: rows(from, to),
  next_cursor,
});
const list = (...pages: ReturnType<typeof page>[]): Pages => ({
  pages,
  pageParams: pages.map((_, index) => (index ? `c${index}` : undefined)),
});
const ids = ({ pages }: Pages) => pages.flatMap(({ results }) => results.map(({ id }) => id));

describe("the tail", () => {
  it("puts what is new in front, once, and keeps the older pages", () => {
    const after = withNewest(list(page(10, 6), page(5, 1, null)), page(12, 4));
    expect(ids(after)).toEqual(rows(12, 1).map(({ id }) => id));
    expect(after.pages[0]?.next_cursor).toBe("c6");
    expect(withNewest(after, page(12, 4))).toBe(after);
  });

  it("begins anew where more ended than was read: no gap between what is shown and the next page", () => {
    const after = withNewest(list(page(10, 6), page(5, 1)), page(220, 121));
    expect(after.pages).toHaveLength(1);
    expect(after.pages[0]?.next_cursor).toBe("c121");
  });

  it("stays bounded", () => {
    let pages = list(page(50, 1));
    for (let newest = 51; newest < 1000; newest += 7) pages = withNewest(pages, page(newest, newest - 49));
    expect(ids(pages).length).toBeLessThanOrEqual(MAX_LISTED);
    expect(new Set(ids(pages)).size).toBe(ids(pages).length);
  });

  it("fills an empty list", () => {
    expect(ids(withNewest(list({ results: [], next_cursor: null }), page(2, 1, null)))).toEqual(["req_2", "req_1"]);
  });
});
