import { keepPreviousData, queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import { request, requestPage } from "@/api/client";
import type { AdapterDtype, Version } from "@/api/types";
import type { AdaptersSearch } from "./search";

export const ADAPTERS_PAGE = 50;

/** A page of the list, searched, filtered and sorted by the server, and the number of matching adapters. */
export const adaptersPageQuery = (tenant: string, { q = "", status, sort = "name", page = 0 }: AdaptersSearch) =>
  queryOptions({
    queryKey: ["t", tenant, "adapter-list", "page", q, status, sort, page],
    queryFn: () =>
      requestPage("GET /api/tenants/{tenant}/adapters", {
        tenant,
        query: { search: q, status, sort, offset: page * ADAPTERS_PAGE, limit: ADAPTERS_PAGE },
      }),
    placeholderData: keepPreviousData,
  });

/** The first adapters whose name or description contains `search`; the server searches all of them. */
export const adapterSearchQuery = (tenant: string, search: string, limit: number) =>
  queryOptions({
    queryKey: ["t", tenant, "adapter-list", "found", search, limit],
    queryFn: () => request("GET /api/tenants/{tenant}/adapters", { tenant, query: { search, limit } }),
    placeholderData: keepPreviousData,
  });

export const adapterQuery = (tenant: string, name: string) =>
  queryOptions({
    queryKey: ["t", tenant, "adapters", name],
    queryFn: () => request("GET /api/tenants/{tenant}/adapters/{name}", { tenant, name }),
  });

const moving = (version: Version | undefined) => version?.state === "staging" || version?.state === "validated";

export const versionQuery = (tenant: string, name: string, number: number) =>
  queryOptions({
    queryKey: ["t", tenant, "adapters", name, "versions", number],
    queryFn: (): Promise<Version> =>
      request("GET /api/tenants/{tenant}/adapters/{name}/versions/{number}", { tenant, name, number }),
    // Polling covers missed live events while a version is being staged.
    refetchInterval: ({ state }) => (moving(state.data) ? 4000 : false),
  });

export const tiersQuery = (tenant: string, name: string, number: number) =>
  queryOptions({
    queryKey: ["t", tenant, "adapters", name, "versions", number, "tiers"],
    queryFn: () =>
      request("GET /api/tenants/{tenant}/adapters/{name}/versions/{number}/tiers", { tenant, name, number }),
    refetchInterval: 10_000,
  });

/** The pin of the live version in the device memory of its hosts, and the memory that it takes. */
export const pinQuery = (tenant: string, name: string) =>
  queryOptions({
    queryKey: ["t", tenant, "adapters", name, "pin"],
    queryFn: () => request("GET /api/tenants/{tenant}/adapters/{name}/pin", { tenant, name }),
    refetchInterval: 10_000,
  });

const MAX_MODELS = 50;

/** The base model and the first callable adapters with `search` in their name or description. */
export const modelsQuery = (tenant: string, search = "") =>
  queryOptions({
    queryKey: ["t", tenant, "models", search],
    queryFn: () => request("GET /api/tenants/{tenant}/models", { tenant, query: { search, limit: MAX_MODELS } }),
    placeholderData: keepPreviousData,
  });

export const canaryQuery = (tenant: string, name: string, alias: string) =>
  queryOptions({
    queryKey: ["t", tenant, "adapters", name, "canary", alias],
    queryFn: () => request("GET /api/tenants/{tenant}/adapters/{name}/aliases/{alias}/canary", { tenant, name, alias }),
    refetchInterval: 5000,
  });

export const storageQuery = (tenant: string) =>
  queryOptions({
    queryKey: ["t", tenant, "storage"],
    queryFn: () => request("GET /api/tenants/{tenant}/storage", { tenant }),
  });

export const ARCHIVED_PAGE = 20;

export const archivedQuery = (
  tenant: string,
  { archived: search = "", archived_sort: sort = "-archived_at", archived_page: page = 0 }: AdaptersSearch,
) =>
  queryOptions({
    queryKey: ["t", tenant, "archived-adapters", search, sort, page],
    queryFn: () =>
      requestPage("GET /api/tenants/{tenant}/archived-adapters", {
        tenant,
        query: { search, sort, offset: page * ARCHIVED_PAGE, limit: ARCHIVED_PAGE },
      }),
    placeholderData: keepPreviousData,
  });

const SHOWN_IN = ["adapters", "adapter-list", "archived-adapters", "storage", "models", "overview"];

/** A mutation of adapters, after which `done` is awaited and all queries that show adapters are read again. */
function useAdapterWrite<T>(tenant: string, write: (input: T) => Promise<unknown>, done?: () => Promise<unknown>) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: write,
    onSuccess: async () => {
      await done?.();
      await Promise.all(SHOWN_IN.map((noun) => client.invalidateQueries({ queryKey: ["t", tenant, noun] })));
    },
  });
}

/** A change of one version, which has no parameters. */
export const useVersionAction = (
  tenant: string,
  name: string,
  action: "promote" | "confirm-base" | "confirm-effect" | "restage" | "archive" | "restore",
) =>
  useAdapterWrite(tenant, (number: number) =>
    request(`POST /api/tenants/{tenant}/adapters/{name}/versions/{number}/${action}`, { tenant, name, number }),
  );

export const useSetAdapterDtype = (tenant: string, name: string, number: number) =>
  useAdapterWrite(tenant, (dtype: AdapterDtype) =>
    request("PUT /api/tenants/{tenant}/adapters/{name}/versions/{number}/dtype", {
      tenant,
      name,
      number,
      body: { adapter_dtype: dtype },
    }),
  );

/** `done` runs even if the component that called it is unmounted, because its adapter no longer exists. */
export const useArchive = (tenant: string, name: string, done: () => Promise<unknown>) =>
  useAdapterWrite(tenant, () => request("DELETE /api/tenants/{tenant}/adapters/{name}", { tenant, name }), done);

export const useSetPin = (tenant: string, name: string) =>
  useAdapterWrite(tenant, (pinned: boolean): Promise<unknown> => {
    return request(`${pinned ? "PUT" : "DELETE"} /api/tenants/{tenant}/adapters/{name}/pin`, { tenant, name });
  });

export const useSetAlias = (tenant: string, name: string) =>
  useAdapterWrite(tenant, ({ alias, version }: { alias: string; version: number }) =>
    request("PUT /api/tenants/{tenant}/adapters/{name}/aliases/{alias}", { tenant, name, alias, body: { version } }),
  );

export const useRemoveAlias = (tenant: string, name: string) =>
  useAdapterWrite(tenant, (alias: string) =>
    request("DELETE /api/tenants/{tenant}/adapters/{name}/aliases/{alias}", { tenant, name, alias }),
  );

export const useRollBack = (tenant: string, name: string) =>
  useAdapterWrite(tenant, (alias: string) =>
    request("POST /api/tenants/{tenant}/adapters/{name}/aliases/{alias}/rollback", { tenant, name, alias }),
  );

export const useSetCanary = (tenant: string, name: string) =>
  useAdapterWrite(tenant, ({ alias, version, percent }: { alias: string; version: number; percent: number }) =>
    request("PUT /api/tenants/{tenant}/adapters/{name}/aliases/{alias}/canary", {
      tenant,
      name,
      alias,
      body: { version, percent },
    }),
  );

export const useStopCanary = (tenant: string, name: string) =>
  useAdapterWrite(tenant, (alias: string) =>
    request("DELETE /api/tenants/{tenant}/adapters/{name}/aliases/{alias}/canary", { tenant, name, alias }),
  );

export const useDeleteVersion = (tenant: string, name: string) =>
  useAdapterWrite(tenant, (number: number) =>
    request("DELETE /api/tenants/{tenant}/adapters/{name}/versions/{number}", { tenant, name, number }),
  );

export const useRestoreAdapter = (tenant: string) =>
  useAdapterWrite(tenant, (id: string) =>
    request("POST /api/tenants/{tenant}/archived-adapters/{adapter_id}/restore", { tenant, adapter_id: id }),
  );

export const useDeleteAdapter = (tenant: string) =>
  useAdapterWrite(tenant, (id: string) =>
    request("DELETE /api/tenants/{tenant}/archived-adapters/{adapter_id}", { tenant, adapter_id: id }),
  );
