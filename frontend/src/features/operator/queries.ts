import { keepPreviousData, queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import { api, unwrap } from "@/api/client";
import { ApiError } from "@/api/errors";
import type { NewBaseModel, NewPrices } from "@/api/types";

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

/** Null while it is not decided. */
export const baseModelQuery = queryOptions({
  queryKey: ["operator", "base-model"],
  queryFn: async () => {
    try {
      return await unwrap(api.GET("/api/operator/base-model"));
    } catch (error) {
      if (error instanceof ApiError && error.code === "base_model_undecided") return null;
      throw error;
    }
  },
});

export const allHostsQuery = queryOptions({
  queryKey: ["operator", "hosts"],
  queryFn: () => unwrap(api.GET("/api/operator/hosts")),
  refetchInterval: 10_000,
});

export function useSetBaseModel() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (body: NewBaseModel) => unwrap(api.PUT("/api/operator/base-model", { body })),
    onSuccess: () => client.invalidateQueries({ queryKey: ["operator"] }),
  });
}

export function usePublishPrices() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (body: NewPrices) => unwrap(api.POST("/api/operator/prices", { body })),
    onSuccess: () => client.invalidateQueries({ queryKey: ["operator"] }),
  });
}
