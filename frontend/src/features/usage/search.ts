import { flag, text } from "@/lib/search-params";
import { type RangeSearch, readRangeSearch } from "@/lib/time-range";

/** What the address of the usage page holds. */
export interface UsageSearch extends RangeSearch {
  /** Of the statement, as 2026-05; this month if left out. */
  month?: string;
  /** Only what ran on it; not the statement, which is of all. */
  base_model?: string;
  /** Begin with a new export. */
  export?: true;
}

const month = (value: unknown) =>
  typeof value === "string" && /^\d{4}-(0[1-9]|1[0-2])$/.test(value) ? value : undefined;

export const readUsageSearch = (search: Record<string, unknown>): UsageSearch => ({
  ...readRangeSearch(search),
  month: month(search.month),
  base_model: text(search.base_model),
  export: flag(search.export),
});
