import { oneOf, pageIn, text } from "@/lib/search-params";
import { type RangeSearch, readRangeSearch } from "@/lib/time-range";

const USES = ["used", "unused"] as const;
export type Use = (typeof USES)[number];

export interface HostsSearch extends RangeSearch {
  /** Name of the host whose pages are listed by owner. */
  map?: string;
  /** Name of the host whose details are open. */
  host?: string;
  /** Text in the name, the model or the device of a host. */
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
