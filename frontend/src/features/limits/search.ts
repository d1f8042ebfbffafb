import { pageIn, text } from "@/lib/search-params";

/** Search parameters of the limits page. */
export interface KeysSearch {
  q?: string;
  page?: number;
}

export const readLimitsSearch = (search: Record<string, unknown>): KeysSearch => ({
  q: text(search.q),
  page: pageIn(search.page),
});
