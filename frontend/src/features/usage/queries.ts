import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { request } from "@/api/client";
import { useWrite } from "@/app/use-write";

export const usageQuery = (tenant: string, days: number) =>
  queryOptions({
    queryKey: ["t", tenant, "usage", days],
    queryFn: () => request("GET /api/tenants/{tenant}/usage", { tenant, query: { days } }),
    placeholderData: keepPreviousData,
  });

export const statementQuery = (tenant: string, month: string) =>
  queryOptions({
    queryKey: ["t", tenant, "usage", "statement", month],
    queryFn: () => request("GET /api/tenants/{tenant}/statement", { tenant, query: { month } }),
    placeholderData: keepPreviousData,
  });

export const exportsQuery = (tenant: string) =>
  queryOptions({
    queryKey: ["t", tenant, "exports"],
    queryFn: () => request("GET /api/tenants/{tenant}/exports", { tenant }),
    // A background job writes exports. Poll while one is running.
    refetchInterval: ({ state }) =>
      state.data?.some((one) => one.state === "queued" || one.state === "running") ? 2000 : false,
  });

export const schedulesQuery = (tenant: string) =>
  queryOptions({
    queryKey: ["t", tenant, "export-schedules"],
    queryFn: () => request("GET /api/tenants/{tenant}/export-schedules", { tenant }),
  });

export type Grain = "day" | "hour";

export const useRequestExport = (tenant: string) =>
  useWrite(["t", tenant, "exports"], (body: { days: number; grain: Grain }) =>
    request("POST /api/tenants/{tenant}/exports", { tenant, body }),
  );

export const useAddSchedule = (tenant: string) =>
  useWrite(["t", tenant, "export-schedules"], (body: { cadence: "week" | "month"; grain: Grain }) =>
    request("POST /api/tenants/{tenant}/export-schedules", { tenant, body }),
  );

export const useDeleteSchedule = (tenant: string) =>
  useWrite(["t", tenant, "export-schedules"], (id: string) =>
    request("DELETE /api/tenants/{tenant}/export-schedules/{schedule_id}", { tenant, schedule_id: id }),
  );
