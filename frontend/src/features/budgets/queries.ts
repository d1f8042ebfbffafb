import { queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import { api, unwrap } from "@/api/client";
import type { BudgetReport, BudgetsRequest } from "@/api/types";

export const budgetsQuery = (tenant: string) =>
  queryOptions({
    queryKey: ["t", tenant, "budgets"],
    queryFn: () => unwrap(api.GET("/api/tenants/{tenant}/budgets", { params: { path: { tenant } } })),
    refetchInterval: 30_000,
  });

export const keyBudgetsQuery = (tenant: string, key: string) =>
  queryOptions({
    queryKey: ["t", tenant, "budgets", key],
    queryFn: () =>
      unwrap(api.GET("/api/tenants/{tenant}/keys/{key_id}/budgets", { params: { path: { tenant, key_id: key } } })),
    gcTime: 0,
  });

export const grantedBudgetsQuery = (tenant: string) =>
  queryOptions({
    queryKey: ["operator", "tenants", tenant, "budgets"],
    queryFn: () => unwrap(api.GET("/api/operator/tenants/{tenant}/budgets", { params: { path: { tenant } } })),
  });

/** Sets the budgets of the tenant, or of one of its keys. */
export function useSetBudgets(tenant: string, key?: string) {
  const client = useQueryClient();
  return useMutation<BudgetReport, Error, BudgetsRequest>({
    mutationFn: (body) =>
      key === undefined
        ? unwrap(api.PUT("/api/tenants/{tenant}/budgets", { params: { path: { tenant } }, body }))
        : unwrap(
            api.PUT("/api/tenants/{tenant}/keys/{key_id}/budgets", { params: { path: { tenant, key_id: key } }, body }),
          ),
    onSuccess: (report) => client.setQueryData(budgetsQuery(tenant).queryKey, report),
  });
}

/** Sets the budgets that an operator grants a tenant. */
export function useGrantBudgets(tenant: string) {
  const client = useQueryClient();
  return useMutation<BudgetReport, Error, BudgetsRequest>({
    mutationFn: (body) =>
      unwrap(api.PUT("/api/operator/tenants/{tenant}/budgets", { params: { path: { tenant } }, body })),
    onSuccess: (report) => {
      client.setQueryData(grantedBudgetsQuery(tenant).queryKey, report);
      return client.invalidateQueries({ queryKey: ["t", tenant, "budgets"] });
    },
  });
}
