import { flag, oneOf, pageIn, text } from "@/lib/search-params";
import { type RangeSearch, readRangeSearch } from "@/lib/time-range";

const PART_SORTS = ["requests", "tokens", "device_us"] as const;
export type PartSort = (typeof PART_SORTS)[number];

/** Search, page and order of one breakdown. */
export interface PartsSearch {
  q?: string;
  page?: number;
  sort?: PartSort;
}

/** Search parameters of the usage page. */
export interface UsageSearch extends RangeSearch {
  /** Month of the statement, such as 2026-05; the current month by default. */
  month?: string;
  /** Limits the figures to one base model. The statement always covers all. */
  base_model?: string;
  adapter?: PartsSearch;
  key?: PartsSearch;
  /** Opens the dialog for a new export. */
  export?: true;
}

const month = (value: unknown) =>
  typeof value === "string" && /^\d{4}-(0[1-9]|1[0-2])$/.test(value) ? value : undefined;

function parts(value: unknown): PartsSearch | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  const { q, page, sort } = value as Record<string, unknown>;
  const read: PartsSearch = { q: text(q), page: pageIn(page), sort: oneOf(sort, PART_SORTS) };
  return Object.values(read).some((one) => one !== undefined) ? read : undefined;
}

export const readUsageSearch = (search: Record<string, unknown>): UsageSearch => ({
  ...readRangeSearch(search),
  month: month(search.month),
  base_model: text(search.base_model),
  adapter: parts(search.adapter),
  key: parts(search.key),
  export: flag(search.export),
});
