import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { request, requestPage } from "@/api/client";
import type { KeyScope } from "@/api/types";
import type { SearchOptions } from "@/components/search-options";
import { useWrite } from "@/app/use-write";

import { DEFAULT_SORT, type KeysSearch } from "./search";

export const KEYS_PAGE = 50;

export const keysPageQuery = (tenant: string, { q = "", page = 0, sort = DEFAULT_SORT, revoked }: KeysSearch) =>
  queryOptions({
    queryKey: ["t", tenant, "keys", "page", q, page, sort, revoked],
    queryFn: async () => {
      const state = revoked ? "revoked" : "not_revoked";
      const query = { search: q, state, sort, offset: page * KEYS_PAGE, limit: KEYS_PAGE } as const;
      return requestPage("GET /api/tenants/{tenant}/keys", { tenant, query });
    },
    placeholderData: keepPreviousData,
  });

/** Number of keys that an open select shows. The others are found by typing. */
const OPTIONS = 50;

export interface KeyFilter {
  state?: "usable" | "not_revoked" | "revoked";
  scope?: KeyScope;
}

/** The filter for keys that can run requests now. */
export const RUNNABLE: KeyFilter = { state: "usable", scope: "infer" };

/** The options of a select of keys: the newest that match a search by name, prefix or ID. */
export const keyOptionsQuery = (tenant: string, search: string, filter: KeyFilter = {}) =>
  queryOptions({
    queryKey: ["t", tenant, "keys", "options", search, filter],
    queryFn: async (): Promise<SearchOptions> => {
      const query = { ...filter, search, limit: OPTIONS };
      const { rows, total } = await requestPage("GET /api/tenants/{tenant}/keys", { tenant, query });
      return {
        options: rows.map(({ id, name, prefix, revoked_at }) => ({
          value: id,
          label: name,
          note: `lk_${prefix}_…${revoked_at ? ", revoked" : ""}`,
        })),
        total,
      };
    },
    placeholderData: keepPreviousData,
  });

export interface NewKey {
  name: string;
  scopes?: KeyScope[];
  expires_at?: string;
}

export const useCreateKey = (tenant: string) =>
  useWrite(["t", tenant, "keys"], (body: NewKey) => request("POST /api/tenants/{tenant}/keys", { tenant, body }), {
    secret: true,
  });

export const useRevokeKey = (tenant: string) =>
  useWrite(["t", tenant, "keys"], (id: string) =>
    request("DELETE /api/tenants/{tenant}/keys/{key_id}", { tenant, key_id: id }),
  );

export interface KeyChange {
  id: string;
  body: { name?: string; scopes?: KeyScope[]; expires_at?: string | null };
}

export const useChangeKey = (tenant: string) =>
  useWrite(["t", tenant, "keys"], ({ id, body }: KeyChange) =>
    request("PATCH /api/tenants/{tenant}/keys/{key_id}", { tenant, key_id: id, body }),
  );

export const useRotateKey = (tenant: string) =>
  useWrite(
    ["t", tenant, "keys"],
    ({ id, grace_s }: { id: string; grace_s: number }) =>
      request("POST /api/tenants/{tenant}/keys/{key_id}/rotate", { tenant, key_id: id, body: { grace_s } }),
    { secret: true },
  );
