import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { api, unwrap } from "@/api/client";
import type { LatencyObjectives } from "@/api/types";
import { useWrite } from "@/app/use-write";

export const sloQuery = (tenant: string, days: number) =>
  queryOptions({
    queryKey: ["t", tenant, "slo", days],
    queryFn: () => unwrap(api.GET("/api/tenants/{tenant}/slo", { params: { path: { tenant }, query: { days } } })),
    placeholderData: keepPreviousData,
  });

export const useSetSlo = (tenant: string) =>
  useWrite(["t", tenant, "slo"], (body: LatencyObjectives) =>
    unwrap(api.PUT("/api/tenants/{tenant}/slo", { params: { path: { tenant } }, body })),
  );
