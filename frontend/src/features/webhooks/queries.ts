import { queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import { api, unwrap } from "@/api/client";
import type { WebhookSettings } from "@/api/types";

export const webhooksQuery = (tenant: string) =>
  queryOptions({
    queryKey: ["t", tenant, "webhooks"],
    queryFn: () => unwrap(api.GET("/api/tenants/{tenant}/webhooks", { params: { path: { tenant } } })),
  });

export const deliveriesQuery = (tenant: string, id: string) =>
  queryOptions({
    queryKey: ["t", tenant, "webhooks", id, "deliveries"],
    queryFn: () =>
      unwrap(
        api.GET("/api/tenants/{tenant}/webhooks/{webhook_id}/deliveries", {
          params: { path: { tenant, webhook_id: id } },
        }),
      ),
    refetchInterval: 3000,
  });

/** Mutations of webhooks, after which the queries that show them are read again. */
export function useWebhookActions(tenant: string) {
  const client = useQueryClient();
  const onSuccess = () => client.invalidateQueries({ queryKey: ["t", tenant, "webhooks"] });
  const at = (id: string) => ({ params: { path: { tenant, webhook_id: id } } });
  return {
    // The answers contain secrets. They must not stay in memory after their dialog is closed.
    create: useMutation({
      mutationFn: (body: WebhookSettings) =>
        unwrap(api.POST("/api/tenants/{tenant}/webhooks", { params: { path: { tenant } }, body })),
      onSuccess,
      gcTime: 0,
    }),
    rotate: useMutation({
      mutationFn: (id: string) => unwrap(api.POST("/api/tenants/{tenant}/webhooks/{webhook_id}/rotate", at(id))),
      onSuccess,
      gcTime: 0,
    }),
    change: useMutation({
      mutationFn: ({ id, body }: { id: string; body: WebhookSettings }) =>
        unwrap(api.PUT("/api/tenants/{tenant}/webhooks/{webhook_id}", { ...at(id), body })),
      onSuccess,
    }),
    remove: useMutation({
      mutationFn: (id: string) => unwrap(api.DELETE("/api/tenants/{tenant}/webhooks/{webhook_id}", at(id))),
      onSuccess,
    }),
    test: useMutation({
      mutationFn: (id: string) => unwrap(api.POST("/api/tenants/{tenant}/webhooks/{webhook_id}/test", at(id))),
      onSuccess,
    }),
    replay: useMutation({
      mutationFn: ({ id, delivery }: { id: string; delivery: string }) =>
        unwrap(
          api.POST("/api/tenants/{tenant}/webhooks/{webhook_id}/deliveries/{delivery_id}/replay", {
            params: { path: { tenant, webhook_id: id, delivery_id: delivery } },
          }),
        ),
      onSuccess,
    }),
  };
}
