import { keepPreviousData, queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import { api, unwrap } from "@/api/client";

export const usageQuery = (tenant: string, days: number) =>
  queryOptions({
    queryKey: ["t", tenant, "usage", days],
    queryFn: () => unwrap(api.GET("/api/tenants/{tenant}/usage", { params: { path: { tenant }, query: { days } } })),
    placeholderData: keepPreviousData,
  });

export const statementQuery = (tenant: string, month: string) =>
  queryOptions({
    queryKey: ["t", tenant, "usage", "statement", month],
    queryFn: () =>
      unwrap(api.GET("/api/tenants/{tenant}/statement", { params: { path: { tenant }, query: { month } } })),
    placeholderData: keepPreviousData,
  });

export const exportsQuery = (tenant: string) =>
  queryOptions({
    queryKey: ["t", tenant, "exports"],
    queryFn: () => unwrap(api.GET("/api/tenants/{tenant}/exports", { params: { path: { tenant } } })),
    // A job writes them; ask while one is under way.
    refetchInterval: ({ state }) =>
      state.data?.some((one) => one.state === "queued" || one.state === "running") ? 2000 : false,
  });

export const schedulesQuery = (tenant: string) =>
  queryOptions({
    queryKey: ["t", tenant, "export-schedules"],
    queryFn: () => unwrap(api.GET("/api/tenants/{tenant}/export-schedules", { params: { path: { tenant } } })),
  });

export type Grain = "day" | "hour";

export function useRequestExport(tenant: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (body: { days: number; grain: Grain }) =>
      unwrap(api.POST("/api/tenants/{tenant}/exports", { params: { path: { tenant } }, body })),
    onSuccess: () => client.invalidateQueries({ queryKey: ["t", tenant, "exports"] }),
  });
}

export function useAddSchedule(tenant: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (body: { cadence: "week" | "month"; grain: Grain }) =>
      unwrap(api.POST("/api/tenants/{tenant}/export-schedules", { params: { path: { tenant } }, body })),
    onSuccess: () => client.invalidateQueries({ queryKey: ["t", tenant, "export-schedules"] }),
  });
}

export function useDeleteSchedule(tenant: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (id: string) =>
      unwrap(
        api.DELETE("/api/tenants/{tenant}/export-schedules/{schedule_id}", {
          params: { path: { tenant, schedule_id: id } },
        }),
      ),
    onSuccess: () => client.invalidateQueries({ queryKey: ["t", tenant, "export-schedules"] }),
  });
}
