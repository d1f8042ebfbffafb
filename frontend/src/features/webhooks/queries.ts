import { queryOptions } from "@tanstack/react-query";
import { request } from "@/api/client";
import type { WebhookSettings } from "@/api/types";
import { useWrite } from "@/app/use-write";

export const webhooksQuery = (tenant: string) =>
  queryOptions({
    queryKey: ["t", tenant, "webhooks"],
    queryFn: () => request("GET /api/tenants/{tenant}/webhooks", { tenant }),
  });

export const deliveriesQuery = (tenant: string, id: string) =>
  queryOptions({
    queryKey: ["t", tenant, "webhooks", id, "deliveries"],
    queryFn: () => request("GET /api/tenants/{tenant}/webhooks/{webhook_id}/deliveries", { tenant, webhook_id: id }),
    refetchInterval: 3000,
  });

/** Mutations of webhooks, after which the queries that show them are read again. */
export function useWebhookActions(tenant: string) {
  const key = ["t", tenant, "webhooks"];
  const secret = { secret: true };
  return {
    create: useWrite(
      key,
      (body: WebhookSettings) => request("POST /api/tenants/{tenant}/webhooks", { tenant, body }),
      secret,
    ),
    rotate: useWrite(
      key,
      (id: string) => request("POST /api/tenants/{tenant}/webhooks/{webhook_id}/rotate", { tenant, webhook_id: id }),
      secret,
    ),
    change: useWrite(key, ({ id, body }: { id: string; body: WebhookSettings }) =>
      request("PUT /api/tenants/{tenant}/webhooks/{webhook_id}", { tenant, webhook_id: id, body }),
    ),
    remove: useWrite(key, (id: string) =>
      request("DELETE /api/tenants/{tenant}/webhooks/{webhook_id}", { tenant, webhook_id: id }),
    ),
    test: useWrite(key, (id: string) =>
      request("POST /api/tenants/{tenant}/webhooks/{webhook_id}/test", { tenant, webhook_id: id }),
    ),
    replay: useWrite(key, ({ id, delivery }: { id: string; delivery: string }) =>
      request("POST /api/tenants/{tenant}/webhooks/{webhook_id}/deliveries/{delivery_id}/replay", {
        tenant,
        webhook_id: id,
        delivery_id: delivery,
      }),
    ),
  };
}
