import { pageIn, text } from "@/lib/search-params";

/** What the address of the limits page holds: which of its keys. */
export interface KeysSearch {
  q?: string;
  page?: number;
}

export const readLimitsSearch = (search: Record<string, unknown>): KeysSearch => ({
  q: text(search.q),
  page: pageIn(search.page),
});
