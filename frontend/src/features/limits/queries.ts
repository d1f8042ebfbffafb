import { keepPreviousData, queryOptions, useQueryClient } from "@tanstack/react-query";
import { api, unwrap } from "@/api/client";
import type { KeyLimits, TenantLimits } from "@/api/types";
import { useWrite } from "@/app/use-write";

export const LIMITS_PAGE = 50;

/** The limits and usage of the tenant and of one page of its keys, with the number of keys. */
export const limitsQuery = (tenant: string, search: string, page: number) =>
  queryOptions({
    queryKey: ["t", tenant, "limits", search, page],
    queryFn: async () => {
      const answer = await api.GET("/api/tenants/{tenant}/limits", {
        params: { path: { tenant }, query: { search, offset: page * LIMITS_PAGE, limit: LIMITS_PAGE } },
      });
      const limits = await unwrap(Promise.resolve(answer));
      return { ...limits, keyCount: Number(answer.response.headers.get("X-Total-Count") ?? limits.keys.length) };
    },
    placeholderData: keepPreviousData,
    // Usage within sliding windows falls without any event, so it is polled.
    refetchInterval: 5000,
  });

export const useSetKeyLimits = (tenant: string, id: string) =>
  useWrite(["t", tenant, "limits"], (body: KeyLimits) =>
    unwrap(api.PUT("/api/tenants/{tenant}/keys/{key_id}/limits", { params: { path: { tenant, key_id: id } }, body })),
  );

export function useSetTenantLimits(tenant: string) {
  const client = useQueryClient();
  return useWrite(["t", tenant, "limits"], async (body: TenantLimits) => {
    await unwrap(api.PUT("/api/operator/tenants/{tenant}/limits", { params: { path: { tenant } }, body }));
    await client.invalidateQueries({ queryKey: ["operator", "tenants"] });
  });
}
