import { queryOptions } from "@tanstack/react-query";
import { request } from "@/api/client";

export const overviewQuery = (tenant: string) =>
  queryOptions({
    queryKey: ["t", tenant, "overview"],
    queryFn: () => request("GET /api/tenants/{tenant}/overview", { tenant }),
    refetchInterval: 30_000,
  });
