import { oneOf, pageIn, text } from "@/lib/search-params";
import { type RangeSearch, readRangeSearch } from "@/lib/time-range";

const USES = ["used", "unused"] as const;
export type Use = (typeof USES)[number];

export interface HostsSearch extends RangeSearch {
  /** Whose pages are shown one by one. */
  map?: string;
  /** Which one of many is opened. */
  host?: string;
  /** In the name of a host, its model or its device. */
  q?: string;
  use?: Use;
  page?: number;
}

export const readHostsSearch = (search: Record<string, unknown>): HostsSearch => ({
  ...readRangeSearch(search),
  map: text(search.map),
  host: text(search.host),
  q: text(search.q),
  use: oneOf(search.use, USES),
  page: pageIn(search.page),
});
