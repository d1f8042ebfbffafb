import { queryOptions } from "@tanstack/react-query";
import { api, unwrap } from "@/api/client";

export const membersQuery = (tenant: string) =>
  queryOptions({
    queryKey: ["t", tenant, "members"],
    queryFn: () => unwrap(api.GET("/api/tenants/{tenant}/members", { params: { path: { tenant } } })),
  });
