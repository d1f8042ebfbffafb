import { keepPreviousData, queryOptions, useQueryClient } from "@tanstack/react-query";
import { request, requestPage } from "@/api/client";
import type { KeyLimits, TenantLimits } from "@/api/types";
import { useWrite } from "@/app/use-write";

export const LIMITS_PAGE = 50;

/** The limits and usage of the tenant and of one page of its keys, with the number of keys. */
export const limitsQuery = (tenant: string, search: string, page: number) =>
  queryOptions({
    queryKey: ["t", tenant, "limits", search, page],
    queryFn: async () => {
      const query = { search, offset: page * LIMITS_PAGE, limit: LIMITS_PAGE };
      const { rows: limits, total: keyCount } = await requestPage("GET /api/tenants/{tenant}/limits", {
        tenant,
        query,
      });
      return { ...limits, keyCount };
    },
    placeholderData: keepPreviousData,
    // Usage within sliding windows falls without any event, so it is polled.
    refetchInterval: 5000,
  });

export const useSetKeyLimits = (tenant: string, id: string) =>
  useWrite(["t", tenant, "limits"], (body: KeyLimits) =>
    request("PUT /api/tenants/{tenant}/keys/{key_id}/limits", { tenant, key_id: id, body }),
  );

export function useSetTenantLimits(tenant: string) {
  const client = useQueryClient();
  return useWrite(["t", tenant, "limits"], async (body: TenantLimits) => {
    await request("PUT /api/operator/tenants/{tenant}/limits", { tenant, body });
    await client.invalidateQueries({ queryKey: ["operator", "tenants"] });
  });
}
