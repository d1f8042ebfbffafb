import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { api, unwrap } from "@/api/client";
import { type RangeQuery, refreshEvery } from "@/lib/time-range";

interface Of {
  adapter?: string;
  host?: string;
  base_model?: string;
}

export const seriesQuery = (tenant: string, range: RangeQuery, of: Of = {}) =>
  queryOptions({
    queryKey: ["t", tenant, "series", of, range],
    queryFn: () =>
      unwrap(api.GET("/api/tenants/{tenant}/series", { params: { path: { tenant }, query: { ...range, ...of } } })),
    placeholderData: keepPreviousData,
    refetchInterval: refreshEvery(range),
  });

/** The refused requests by code over time. */
export const refusalSeriesQuery = (tenant: string, range: RangeQuery) =>
  queryOptions({
    queryKey: ["t", tenant, "refusals", "series", range],
    queryFn: () =>
      unwrap(api.GET("/api/tenants/{tenant}/refusals/series", { params: { path: { tenant }, query: range } })),
    placeholderData: keepPreviousData,
    refetchInterval: refreshEvery(range),
  });

export const operatorRefusalSeriesQuery = (range: RangeQuery) =>
  queryOptions({
    queryKey: ["operator", "refusals", "series", range],
    queryFn: () => unwrap(api.GET("/api/operator/refusals/series", { params: { query: range } })),
    placeholderData: keepPreviousData,
    refetchInterval: refreshEvery(range),
  });

export const operatorSeriesQuery = (range: RangeQuery, of: { host?: string; tenant?: string } = {}) =>
  queryOptions({
    queryKey: ["operator", "series", of, range],
    queryFn: () => unwrap(api.GET("/api/operator/series", { params: { query: { ...range, ...of } } })),
    placeholderData: keepPreviousData,
    refetchInterval: refreshEvery(range),
  });
