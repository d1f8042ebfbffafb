import { queryOptions } from "@tanstack/react-query";
import { api, unwrap } from "@/api/client";

export const overviewQuery = (tenant: string) =>
  queryOptions({
    queryKey: ["t", tenant, "overview"],
    queryFn: () => unwrap(api.GET("/api/tenants/{tenant}/overview", { params: { path: { tenant } } })),
    refetchInterval: 30_000,
  });
