import { queryOptions } from "@tanstack/react-query";
import { request } from "@/api/client";

export const hostsQuery = (tenant: string) =>
  queryOptions({
    queryKey: ["t", tenant, "hosts"],
    queryFn: () => request("GET /api/tenants/{tenant}/hosts", { tenant }),
    refetchInterval: 10_000,
  });
