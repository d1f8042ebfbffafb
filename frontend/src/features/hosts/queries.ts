import { queryOptions } from "@tanstack/react-query";
import { api, unwrap } from "@/api/client";

export const hostsQuery = (tenant: string) =>
  queryOptions({
    queryKey: ["t", tenant, "hosts"],
    queryFn: () => unwrap(api.GET("/api/tenants/{tenant}/hosts", { params: { path: { tenant } } })),
    refetchInterval: 10_000,
  });
