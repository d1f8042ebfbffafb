import { queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import { api, unwrap } from "@/api/client";
import type { KeyLimits } from "@/api/types";

export const limitsQuery = (tenant: string) =>
  queryOptions({
    queryKey: ["t", tenant, "limits"],
    queryFn: () => unwrap(api.GET("/api/tenants/{tenant}/limits", { params: { path: { tenant } } })),
    // Windows slide: what is used falls without anything happening.
    refetchInterval: 5000,
  });

export function useSetKeyLimits(tenant: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: ({ id, body }: { id: string; body: KeyLimits }) =>
      unwrap(api.PUT("/api/tenants/{tenant}/keys/{key_id}/limits", { params: { path: { tenant, key_id: id } }, body })),
    onSuccess: () => client.invalidateQueries({ queryKey: ["t", tenant, "limits"] }),
  });
}
