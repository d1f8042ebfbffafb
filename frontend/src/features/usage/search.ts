import { flag, text } from "@/lib/search-params";
import { type RangeSearch, readRangeSearch } from "@/lib/time-range";

/** Search parameters of the usage page. */
export interface UsageSearch extends RangeSearch {
  /** Month of the statement, such as 2026-05; the current month by default. */
  month?: string;
  /** Limits the figures to one base model. The statement always covers all. */
  base_model?: string;
  /** Opens the dialog for a new export. */
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
