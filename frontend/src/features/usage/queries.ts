import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { api, unwrap } from "@/api/client";

export const usageQuery = (tenant: string, days: number) =>
  queryOptions({
    queryKey: ["t", tenant, "usage", days],
    queryFn: () => unwrap(api.GET("/api/tenants/{tenant}/usage", { params: { path: { tenant }, query: { days } } })),
    placeholderData: keepPreviousData,
  });
