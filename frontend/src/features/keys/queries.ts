import { keepPreviousData, queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import { api, unwrap } from "@/api/client";
import type { KeyScope } from "@/api/types";

export const KEYS_PAGE = 50;

export const keysPageQuery = (tenant: string, search: string, page: number) =>
  queryOptions({
    queryKey: ["t", tenant, "keys", "page", search, page],
    queryFn: async () => {
      const answer = await api.GET("/api/tenants/{tenant}/keys", {
        params: { path: { tenant }, query: { search, offset: page * KEYS_PAGE, limit: KEYS_PAGE } },
      });
      const keys = await unwrap(Promise.resolve(answer));
      return { keys, total: Number(answer.response.headers.get("X-Total-Count") ?? keys.length) };
    },
    placeholderData: keepPreviousData,
  });

/** The newest, to choose among. */
export const keysQuery = (tenant: string) =>
  queryOptions({
    queryKey: ["t", tenant, "keys", "newest"],
    queryFn: () =>
      unwrap(api.GET("/api/tenants/{tenant}/keys", { params: { path: { tenant }, query: { limit: 200 } } })),
  });

export interface NewKey {
  name: string;
  scopes?: KeyScope[];
  expires_at?: string;
}

export function useCreateKey(tenant: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (body: NewKey) =>
      unwrap(api.POST("/api/tenants/{tenant}/keys", { params: { path: { tenant } }, body })),
    onSuccess: () => client.invalidateQueries({ queryKey: ["t", tenant, "keys"] }),
    // The answer holds the secret: it must not stay in memory once its dialog is gone.
    gcTime: 0,
  });
}

export function useRevokeKey(tenant: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (id: string) =>
      unwrap(api.DELETE("/api/tenants/{tenant}/keys/{key_id}", { params: { path: { tenant, key_id: id } } })),
    onSuccess: () => client.invalidateQueries({ queryKey: ["t", tenant, "keys"] }),
  });
}

export interface KeyChange {
  id: string;
  body: { name?: string; scopes?: KeyScope[]; expires_at?: string | null };
}

export function useChangeKey(tenant: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: ({ id, body }: KeyChange) =>
      unwrap(api.PATCH("/api/tenants/{tenant}/keys/{key_id}", { params: { path: { tenant, key_id: id } }, body })),
    onSuccess: () => client.invalidateQueries({ queryKey: ["t", tenant, "keys"] }),
  });
}

export function useRotateKey(tenant: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: ({ id, grace_s }: { id: string; grace_s: number }) =>
      unwrap(
        api.POST("/api/tenants/{tenant}/keys/{key_id}/rotate", {
          params: { path: { tenant, key_id: id } },
          body: { grace_s },
        }),
      ),
    onSuccess: () => client.invalidateQueries({ queryKey: ["t", tenant, "keys"] }),
    gcTime: 0,
  });
}
