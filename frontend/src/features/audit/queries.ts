import { infiniteQueryOptions } from "@tanstack/react-query";
import { api, unwrap } from "@/api/client";

export interface AuditFilters {
  action: string;
  actor: string;
  target: string;
  /** Days back; 0 for everything. */
  days: number;
}

const sinceDays = (days: number) => (days ? new Date(Date.now() - days * 86_400_000).toISOString() : undefined);

export const auditQuery = (tenant: string, { action, actor, target, days }: AuditFilters) =>
  infiniteQueryOptions({
    queryKey: ["t", tenant, "audit", action, actor, target, days],
    queryFn: ({ pageParam }) =>
      unwrap(
        api.GET("/api/tenants/{tenant}/audit", {
          params: {
            path: { tenant },
            query: { action, actor, target, since: sinceDays(days), ...(pageParam ? { before: pageParam } : {}) },
          },
        }),
      ),
    initialPageParam: 0,
    getNextPageParam: ({ next }) => next,
  });
