/** Search parameters of the requests page. The router reads them before it loads the page. */

import { flag, oneOf, text, whole } from "@/lib/search-params";

export const OUTCOMES = ["finished", "aborted", "failed", "refused"] as const;
export const SPANS = ["15m", "1h", "6h", "1d", "7d"] as const;

export interface RequestsSearch {
  view?: "refusals";
  id?: string;
  model?: string;
  /** Name of an adapter, and a part of one. */
  adapter?: string;
  adapter_contains?: string;
  version?: number;
  base_model?: string;
  key?: string;
  outcome?: (typeof OUTCOMES)[number];
  error?: string;
  host?: string;
  min_ms?: number;
  min_first_token_ms?: number;
  min_tokens?: number;
  /** Time range that ends now. */
  last?: (typeof SPANS)[number];
  since?: string;
  until?: string;
  /** Stops showing new requests as they end. */
  paused?: true;
  /** ID of the request whose row is open. */
  open?: string;
}

export const readRequestsSearch = (search: Record<string, unknown>): RequestsSearch => ({
  view: oneOf(search.view, ["refusals"]),
  id: text(search.id),
  model: text(search.model),
  adapter: text(search.adapter),
  adapter_contains: text(search.adapter_contains),
  version: whole(search.version),
  base_model: text(search.base_model),
  key: text(search.key),
  outcome: oneOf(search.outcome, OUTCOMES),
  error: text(search.error),
  host: text(search.host),
  min_ms: whole(search.min_ms),
  min_first_token_ms: whole(search.min_first_token_ms),
  min_tokens: whole(search.min_tokens),
  last: oneOf(search.last, SPANS),
  since: text(search.since),
  until: text(search.until),
  paused: flag(search.paused),
  open: text(search.open),
});

const SECONDS: Record<(typeof SPANS)[number], number> = {
  "15m": 900,
  "1h": 3600,
  "6h": 21_600,
  "1d": 86_400,
  "7d": 604_800,
};

/**
 * Returns the filters as query parameters. A time range begins at a whole minute, so that all pages have the same one.
 */
export function queryParams(search: RequestsSearch, now: number) {
  // Read again: the address of a page may have parameters of other pages, which the API refuses.
  const { view: _view, open: _open, paused: _paused, last, since, ...filters } = readRequestsSearch({ ...search });
  const minute = Math.floor(now / 60_000) * 60_000;
  return { ...filters, since: last ? new Date(minute - SECONDS[last] * 1000).toISOString() : since };
}

const FILTERS = [
  "id",
  "model",
  "adapter",
  "adapter_contains",
  "version",
  "base_model",
  "key",
  "outcome",
  "error",
  "host",
  "min_ms",
  "min_first_token_ms",
  "min_tokens",
  "last",
  "since",
  "until",
] as const;

export const isFiltered = (search: RequestsSearch) => FILTERS.some((name) => search[name] !== undefined);

/** Returns the number of filters in use, without the search by model or request ID. */
export const countFilters = (search: RequestsSearch) =>
  FILTERS.filter((name) => name !== "id" && name !== "model" && search[name] !== undefined).length;

/** The filters without any value. */
export const NO_FILTERS: RequestsSearch = Object.fromEntries(FILTERS.map((name) => [name, undefined]));
