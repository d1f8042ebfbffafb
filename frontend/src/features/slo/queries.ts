import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { request } from "@/api/client";
import type { LatencyObjectives } from "@/api/types";
import { useWrite } from "@/app/use-write";

export const sloQuery = (tenant: string, days: number) =>
  queryOptions({
    queryKey: ["t", tenant, "slo", days],
    queryFn: () => request("GET /api/tenants/{tenant}/slo", { tenant, query: { days } }),
    placeholderData: keepPreviousData,
  });

export const useSetSlo = (tenant: string) =>
  useWrite(["t", tenant, "slo"], (body: LatencyObjectives) =>
    request("PUT /api/tenants/{tenant}/slo", { tenant, body }),
  );
