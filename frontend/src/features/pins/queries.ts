import { queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import { request } from "@/api/client";
import type { NewPrefix } from "@/api/types";

/** All adapters and prefixes that the tenant pinned in device memory, and their part of its quota. */
export const pinsQuery = (tenant: string) =>
  queryOptions({
    queryKey: ["t", tenant, "pins"],
    queryFn: () => request("GET /api/tenants/{tenant}/pins", { tenant }),
    refetchInterval: 10_000,
  });

/** A pinned prefix with its text. */
export const prefixQuery = (tenant: string, prefix_name: string) =>
  queryOptions({
    queryKey: ["t", tenant, "pins", prefix_name],
    queryFn: () => request("GET /api/tenants/{tenant}/pinned-prefixes/{prefix_name}", { tenant, prefix_name }),
  });

function useChange<T>(tenant: string, change: (input: T) => Promise<unknown>) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: change,
    onSuccess: () =>
      Promise.all([
        client.invalidateQueries({ queryKey: pinsQuery(tenant).queryKey }),
        client.invalidateQueries({
          queryKey: ["t", tenant, "adapters"],
          predicate: ({ queryKey }) => queryKey.includes("pin"),
        }),
      ]),
  });
}

export const usePinPrefix = (tenant: string) =>
  useChange(tenant, (body: NewPrefix) => request("POST /api/tenants/{tenant}/pinned-prefixes", { tenant, body }));

export const useUnpinPrefix = (tenant: string) =>
  useChange(tenant, (prefix_name: string) =>
    request("DELETE /api/tenants/{tenant}/pinned-prefixes/{prefix_name}", { tenant, prefix_name }),
  );
