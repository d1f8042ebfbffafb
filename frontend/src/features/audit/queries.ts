import { infiniteQueryOptions, keepPreviousData } from "@tanstack/react-query";
import { request } from "@/api/client";
import type { AuditSearch } from "./search";

/** The log of one tenant, or of all tenants for an operator. */
export type Scope = { tenant: string } | "everybody";

const sinceDays = (days: number) => new Date(Date.now() - days * 86_400_000).toISOString();

/** Returns the filters as query parameters. */
const queryParams = ({ of, action, actor, target, days }: AuditSearch) => ({
  ...(of ? { tenant: of } : {}),
  ...(action ? { action } : {}),
  ...(actor ? { actor } : {}),
  ...(target ? { target } : {}),
  ...(days ? { since: sinceDays(days) } : {}),
});

export const auditQuery = (scope: Scope, filters: AuditSearch) =>
  infiniteQueryOptions({
    queryKey: [...(scope === "everybody" ? ["operator"] : ["t", scope.tenant]), "audit", filters],
    queryFn: ({ pageParam }) => {
      const query = { ...queryParams(filters), ...(pageParam ? { before: pageParam } : {}) };
      return scope === "everybody"
        ? request("GET /api/operator/audit", { query })
        : request("GET /api/tenants/{tenant}/audit", { ...scope, query });
    },
    initialPageParam: 0,
    getNextPageParam: ({ next }) => next,
    placeholderData: keepPreviousData,
  });

/** Returns the address of the same rows as a file. */
export function csvAddress(scope: Scope, filters: AuditSearch): string {
  const query = new URLSearchParams(queryParams(filters)).toString();
  const base = scope === "everybody" ? "/api/operator" : `/api/tenants/${scope.tenant}`;
  return `${base}/audit.csv${query ? `?${query}` : ""}`;
}
