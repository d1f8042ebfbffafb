import { oneOf, pageIn, text } from "@/lib/search-params";

/** The parts of an adapter's page. */
export const ADAPTER_TABS = ["version", "quality", "traffic", "pins", "code"] as const;
export type AdapterTab = (typeof ADAPTER_TABS)[number];

export const STATUSES = ["ready", "staging", "failed"] as const;
export const ARCHIVED_SORTS = ["-archived_at", "archived_at", "name", "-name"] as const;
export const SORTS = ["name", "-name", "rank", "-rank", "bytes", "-bytes", "created_at", "-created_at"] as const;

/** Search parameters of the adapters page. */
export interface AdaptersSearch {
  q?: string;
  status?: (typeof STATUSES)[number];
  sort?: (typeof SORTS)[number];
  page?: number;
  /** Search, order and page of the archived adapters. */
  archived?: string;
  archived_sort?: (typeof ARCHIVED_SORTS)[number];
  archived_page?: number;
}

export const readAdaptersSearch = (search: Record<string, unknown>): AdaptersSearch => ({
  q: text(search.q),
  status: oneOf(search.status, STATUSES),
  sort: oneOf(search.sort, SORTS),
  page: pageIn(search.page),
  archived: text(search.archived),
  archived_sort: oneOf(search.archived_sort, ARCHIVED_SORTS),
  archived_page: pageIn(search.archived_page),
});
