import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { api, unwrap } from "@/api/client";
import { useWrite } from "@/app/use-write";

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
    // A background job writes exports. Poll while one is running.
    refetchInterval: ({ state }) =>
      state.data?.some((one) => one.state === "queued" || one.state === "running") ? 2000 : false,
  });

export const schedulesQuery = (tenant: string) =>
  queryOptions({
    queryKey: ["t", tenant, "export-schedules"],
    queryFn: () => unwrap(api.GET("/api/tenants/{tenant}/export-schedules", { params: { path: { tenant } } })),
  });

export type Grain = "day" | "hour";

export const useRequestExport = (tenant: string) =>
  useWrite(["t", tenant, "exports"], (body: { days: number; grain: Grain }) =>
    unwrap(api.POST("/api/tenants/{tenant}/exports", { params: { path: { tenant } }, body })),
  );

export const useAddSchedule = (tenant: string) =>
  useWrite(["t", tenant, "export-schedules"], (body: { cadence: "week" | "month"; grain: Grain }) =>
    unwrap(api.POST("/api/tenants/{tenant}/export-schedules", { params: { path: { tenant } }, body })),
  );

export const useDeleteSchedule = (tenant: string) =>
  useWrite(["t", tenant, "export-schedules"], (id: string) =>
    unwrap(
      api.DELETE("/api/tenants/{tenant}/export-schedules/{schedule_id}", {
        params: { path: { tenant, schedule_id: id } },
      }),
    ),
  );
