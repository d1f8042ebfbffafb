import { queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import { api, unwrap } from "@/api/client";
import type { KeyLimits, TenantLimits } from "@/api/types";

export const limitsQuery = (tenant: string) =>
  queryOptions({
    queryKey: ["t", tenant, "limits"],
    queryFn: () => unwrap(api.GET("/api/tenants/{tenant}/limits", { params: { path: { tenant } } })),
    // Windows slide: what is used falls without anything happening.
    refetchInterval: 5000,
  });

function useLimitsMutation<Limits>(tenant: string, mutationFn: (body: Limits) => Promise<unknown>) {
  const client = useQueryClient();
  return useMutation({ mutationFn, onSuccess: () => client.invalidateQueries({ queryKey: ["t", tenant, "limits"] }) });
}

export const useSetKeyLimits = (tenant: string, id: string) =>
  useLimitsMutation(tenant, (body: KeyLimits) =>
    unwrap(api.PUT("/api/tenants/{tenant}/keys/{key_id}/limits", { params: { path: { tenant, key_id: id } }, body })),
  );

export function useSetTenantLimits(tenant: string) {
  const client = useQueryClient();
  return useLimitsMutation(tenant, async (body: TenantLimits) => {
    await unwrap(api.PUT("/api/operator/tenants/{tenant}/limits", { params: { path: { tenant } }, body }));
    await client.invalidateQueries({ queryKey: ["operator", "tenants"] });
  });
}
