import { queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import { request } from "@/api/client";
import type { BudgetReport, BudgetsRequest } from "@/api/types";
import { useReplace } from "@/app/use-write";

export const budgetsQuery = (tenant: string) =>
  queryOptions({
    queryKey: ["t", tenant, "budgets"],
    queryFn: () => request("GET /api/tenants/{tenant}/budgets", { tenant }),
    refetchInterval: 30_000,
  });

export const keyBudgetsQuery = (tenant: string, key: string) =>
  queryOptions({
    queryKey: ["t", tenant, "budgets", key],
    queryFn: () => request("GET /api/tenants/{tenant}/keys/{key_id}/budgets", { tenant, key_id: key }),
    gcTime: 0,
  });

export const grantedBudgetsQuery = (tenant: string) =>
  queryOptions({
    queryKey: ["operator", "tenants", tenant, "budgets"],
    queryFn: () => request("GET /api/operator/tenants/{tenant}/budgets", { tenant }),
  });

/** Sets the budgets of the tenant, or of one of its keys. */
export const useSetBudgets = (tenant: string, key?: string) =>
  useReplace(budgetsQuery(tenant).queryKey, (body: BudgetsRequest) =>
    key === undefined
      ? request("PUT /api/tenants/{tenant}/budgets", { tenant, body })
      : request("PUT /api/tenants/{tenant}/keys/{key_id}/budgets", { tenant, key_id: key, body }),
  );

/** Sets the budgets that an operator grants a tenant. */
export function useGrantBudgets(tenant: string) {
  const client = useQueryClient();
  return useMutation<BudgetReport, Error, BudgetsRequest>({
    mutationFn: (body) => request("PUT /api/operator/tenants/{tenant}/budgets", { tenant, body }),
    onSuccess: (report) => {
      client.setQueryData(grantedBudgetsQuery(tenant).queryKey, report);
      return client.invalidateQueries({ queryKey: ["t", tenant, "budgets"] });
    },
  });
}
