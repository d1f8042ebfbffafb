/** What the address of the requests page holds. Read by the router before the page is loaded. */

import { flag, oneOf, text, whole } from "@/lib/search-params";

export const OUTCOMES = ["finished", "aborted", "failed", "refused"] as const;
export const SPANS = ["15m", "1h", "6h", "1d", "7d"] as const;

export interface RequestsSearch {
  view?: "refusals";
  id?: string;
  model?: string;
  adapter?: string;
  version?: number;
  base_model?: string;
  key?: string;
  outcome?: (typeof OUTCOMES)[number];
  error?: string;
  host?: string;
  min_ms?: number;
  min_first_token_ms?: number;
  min_tokens?: number;
  /** How far back from now. */
  last?: (typeof SPANS)[number];
  since?: string;
  until?: string;
  /** New requests are not shown as they end. */
  paused?: true;
  /** The request whose row is open. */
  open?: string;
}

export const readRequestsSearch = (search: Record<string, unknown>): RequestsSearch => ({
  view: oneOf(search.view, ["refusals"]),
  id: text(search.id),
  model: text(search.model),
  adapter: text(search.adapter),
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

/** The filters as the server takes them: a span of time begins now, at the whole minute, so that pages belong together. */
export function queryParams(
  { view: _view, open: _open, paused: _paused, last, since, ...filters }: RequestsSearch,
  now: number,
) {
  const minute = Math.floor(now / 60_000) * 60_000;
  return { ...filters, since: last ? new Date(minute - SECONDS[last] * 1000).toISOString() : since };
}

const FILTERS = [
  "id",
  "model",
  "adapter",
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

/** The same page without any filter. */
export const NO_FILTERS: RequestsSearch = Object.fromEntries(FILTERS.map((name) => [name, undefined]));
