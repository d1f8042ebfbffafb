import { keepPreviousData, queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import { api, unwrap } from "@/api/client";
import type { LatencyObjectives } from "@/api/types";

export const sloQuery = (tenant: string, days: number) =>
  queryOptions({
    queryKey: ["t", tenant, "slo", days],
    queryFn: () => unwrap(api.GET("/api/tenants/{tenant}/slo", { params: { path: { tenant }, query: { days } } })),
    placeholderData: keepPreviousData,
  });

export function useSetSlo(tenant: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (body: LatencyObjectives) =>
      unwrap(api.PUT("/api/tenants/{tenant}/slo", { params: { path: { tenant } }, body })),
    onSuccess: () => client.invalidateQueries({ queryKey: ["t", tenant, "slo"] }),
  });
}
