import { keepPreviousData, queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import { api, unwrap } from "@/api/client";
import type { NewPrices } from "@/api/types";

export const reportQuery = (days: number) =>
  queryOptions({
    queryKey: ["operator", "report", days],
    queryFn: () => unwrap(api.GET("/api/operator/report", { params: { query: { days } } })),
    placeholderData: keepPreviousData,
    refetchInterval: 30_000,
  });

export const pricesQuery = queryOptions({
  queryKey: ["operator", "prices"],
  queryFn: () => unwrap(api.GET("/api/operator/prices")),
});

export function usePublishPrices() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (body: NewPrices) => unwrap(api.POST("/api/operator/prices", { body })),
    onSuccess: () => client.invalidateQueries({ queryKey: ["operator"] }),
  });
}
