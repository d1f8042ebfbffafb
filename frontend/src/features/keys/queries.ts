import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { api, unwrap } from "@/api/client";
import type { KeyScope } from "@/api/types";
import { useWrite } from "@/app/use-write";

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

/** The newest keys, for selects. */
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

export const useCreateKey = (tenant: string) =>
  useWrite(
    ["t", tenant, "keys"],
    (body: NewKey) => unwrap(api.POST("/api/tenants/{tenant}/keys", { params: { path: { tenant } }, body })),
    { secret: true },
  );

export const useRevokeKey = (tenant: string) =>
  useWrite(["t", tenant, "keys"], (id: string) =>
    unwrap(api.DELETE("/api/tenants/{tenant}/keys/{key_id}", { params: { path: { tenant, key_id: id } } })),
  );

export interface KeyChange {
  id: string;
  body: { name?: string; scopes?: KeyScope[]; expires_at?: string | null };
}

export const useChangeKey = (tenant: string) =>
  useWrite(["t", tenant, "keys"], ({ id, body }: KeyChange) =>
    unwrap(api.PATCH("/api/tenants/{tenant}/keys/{key_id}", { params: { path: { tenant, key_id: id } }, body })),
  );

export const useRotateKey = (tenant: string) =>
  useWrite(
    ["t", tenant, "keys"],
    ({ id, grace_s }: { id: string; grace_s: number }) =>
      unwrap(
        api.POST("/api/tenants/{tenant}/keys/{key_id}/rotate", {
          params: { path: { tenant, key_id: id } },
          body: { grace_s },
        }),
      ),
    { secret: true },
  );
