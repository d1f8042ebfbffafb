import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { request, requestPage } from "@/api/client";
import { type RangeQuery, refreshEvery } from "@/lib/time-range";
import type { PartsSearch } from "./search";

export const USAGE_PARTS_PAGE = 25;

interface Of {
  adapter?: string;
  host?: string;
  base_model?: string;
}

export const seriesQuery = (tenant: string, range: RangeQuery, of: Of = {}) =>
  queryOptions({
    queryKey: ["t", tenant, "series", of, range],
    queryFn: () => request("GET /api/tenants/{tenant}/series", { tenant, query: { ...range, ...of } }),
    placeholderData: keepPreviousData,
    refetchInterval: refreshEvery(range),
  });

interface PartsOf extends PartsSearch {
  by: "adapter" | "key";
  base_model?: string;
}

/** A page of the tenant's adapters or keys with their usage, searched and sorted by the server. */
export const usagePartsQuery = (tenant: string, range: RangeQuery, of: PartsOf) =>
  queryOptions({
    queryKey: ["t", tenant, "series", "parts", of, range],
    queryFn: async () => {
      const { q: search = "", page = 0, ...more } = of;
      const query = { ...range, ...more, search, offset: page * USAGE_PARTS_PAGE, limit: USAGE_PARTS_PAGE };
      return requestPage("GET /api/tenants/{tenant}/series/parts", { tenant, query });
    },
    placeholderData: keepPreviousData,
    refetchInterval: refreshEvery(range),
  });

/** The refused requests by code over time. */
export const refusalSeriesQuery = (tenant: string, range: RangeQuery) =>
  queryOptions({
    queryKey: ["t", tenant, "refusals", "series", range],
    queryFn: () => request("GET /api/tenants/{tenant}/refusals/series", { tenant, query: range }),
    placeholderData: keepPreviousData,
    refetchInterval: refreshEvery(range),
  });

export const operatorRefusalSeriesQuery = (range: RangeQuery) =>
  queryOptions({
    queryKey: ["operator", "refusals", "series", range],
    queryFn: () => request("GET /api/operator/refusals/series", { query: range }),
    placeholderData: keepPreviousData,
    refetchInterval: refreshEvery(range),
  });

export const operatorSeriesQuery = (range: RangeQuery, of: { host?: string; tenant?: string } = {}) =>
  queryOptions({
    queryKey: ["operator", "series", of, range],
    queryFn: () => request("GET /api/operator/series", { query: { ...range, ...of } }),
    placeholderData: keepPreviousData,
    refetchInterval: refreshEvery(range),
  });
