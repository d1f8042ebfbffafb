import { infiniteQueryOptions } from "@tanstack/react-query";
import { api, unwrap } from "@/api/client";

export interface AuditFilters {
  /** For operators: a short name, "-" for what belongs to no tenant, nothing for all. */
  tenant: string;
  action: string;
  actor: string;
  target: string;
  /** Days back; 0 for everything. */
  days: number;
}

/** Whose log: a tenant's, or everybody's for an operator. */
export type Scope = { tenant: string } | "everybody";

const sinceDays = (days: number) => (days ? new Date(Date.now() - days * 86_400_000).toISOString() : undefined);

/** As query parameters. */
const asked = ({ tenant, action, actor, target, days }: AuditFilters) => ({
  ...(tenant ? { tenant } : {}),
  ...(action ? { action } : {}),
  ...(actor ? { actor } : {}),
  ...(target ? { target } : {}),
  ...(days ? { since: sinceDays(days) } : {}),
});

export const auditQuery = (scope: Scope, filters: AuditFilters) =>
  infiniteQueryOptions({
    queryKey: [...(scope === "everybody" ? ["operator"] : ["t", scope.tenant]), "audit", filters],
    queryFn: ({ pageParam }) => {
      const query = { ...asked(filters), ...(pageParam ? { before: pageParam } : {}) };
      return scope === "everybody"
        ? unwrap(api.GET("/api/operator/audit", { params: { query } }))
        : unwrap(api.GET("/api/tenants/{tenant}/audit", { params: { path: scope, query } }));
    },
    initialPageParam: 0,
    getNextPageParam: ({ next }) => next,
  });

/** Where the same rows are as a file. */
export function csvAddress(scope: Scope, filters: AuditFilters): string {
  const query = new URLSearchParams(asked(filters)).toString();
  const base = scope === "everybody" ? "/api/operator" : `/api/tenants/${scope.tenant}`;
  return `${base}/audit.csv${query ? `?${query}` : ""}`;
}
