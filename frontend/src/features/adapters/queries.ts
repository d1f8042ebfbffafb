import { queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import { api, unwrap } from "@/api/client";
import type { Version } from "@/api/types";

export const adaptersQuery = (tenant: string) =>
  queryOptions({
    queryKey: ["t", tenant, "adapters"],
    queryFn: () => unwrap(api.GET("/api/tenants/{tenant}/adapters", { params: { path: { tenant } } })),
  });

export const adapterQuery = (tenant: string, name: string) =>
  queryOptions({
    queryKey: ["t", tenant, "adapters", name],
    queryFn: () => unwrap(api.GET("/api/tenants/{tenant}/adapters/{name}", { params: { path: { tenant, name } } })),
  });

const moving = (version: Version | undefined) => version?.state === "staging" || version?.state === "validated";

export const versionQuery = (tenant: string, name: string, number: number) =>
  queryOptions({
    queryKey: ["t", tenant, "adapters", name, "versions", number],
    queryFn: (): Promise<Version> =>
      unwrap(api.GET("/api/tenants/{tenant}/adapters/{name}/versions/{number}", { params: { path: { tenant, name, number } } })),
    // The net below the live events: a version on its way is looked at even when no event comes.
    refetchInterval: ({ state }) => (moving(state.data) ? 4000 : false),
  });

export const modelsQuery = (tenant: string) =>
  queryOptions({
    queryKey: ["t", tenant, "models"],
    queryFn: () => unwrap(api.GET("/api/tenants/{tenant}/models", { params: { path: { tenant } } })),
  });

/** A write on one adapter; afterwards everything that shows adapters is read again. */
function useAdapterWrite<T>(tenant: string, write: (input: T) => Promise<unknown>) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: write,
    onSuccess: () =>
      Promise.all(["adapters", "models", "overview"].map((noun) => client.invalidateQueries({ queryKey: ["t", tenant, noun] }))),
  });
}

export const usePromote = (tenant: string, name: string) =>
  useAdapterWrite(tenant, (number: number) =>
    unwrap(api.POST("/api/tenants/{tenant}/adapters/{name}/versions/{number}/promote", { params: { path: { tenant, name, number } } })),
  );

export const useRestage = (tenant: string, name: string) =>
  useAdapterWrite(tenant, (number: number) =>
    unwrap(api.POST("/api/tenants/{tenant}/adapters/{name}/versions/{number}/restage", { params: { path: { tenant, name, number } } })),
  );

export const useArchive = (tenant: string, name: string) =>
  useAdapterWrite(tenant, () => unwrap(api.DELETE("/api/tenants/{tenant}/adapters/{name}", { params: { path: { tenant, name } } })));
