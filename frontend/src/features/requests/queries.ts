import { infiniteQueryOptions } from "@tanstack/react-query";
import { api, unwrap } from "@/api/client";

export const requestsQuery = (tenant: string) =>
  infiniteQueryOptions({
    queryKey: ["t", tenant, "requests"],
    queryFn: ({ pageParam }) =>
      unwrap(
        api.GET("/api/tenants/{tenant}/requests", {
          params: { path: { tenant }, query: { limit: 50, cursor: pageParam } },
        }),
      ),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next_cursor ?? undefined,
  });
