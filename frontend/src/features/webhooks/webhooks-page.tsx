import { getRouteApi } from "@tanstack/react-router";
import { Plus, Webhook as Icon } from "lucide-react";
import { Suspense, useState } from "react";
import type { Webhook } from "@/api/types";
import { Page } from "@/app/page";
import { useQuery } from "@/app/use-query";
import { Status } from "@/components/badge";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { Confirm } from "@/components/dialog";
import { Empty, ErrorNotice, SkeletonRows } from "@/components/notices";
import { toast } from "@/components/toast";
import { useTenant } from "@/features/session/queries";
import { lazyPart } from "@/lib/lazy-part";
import { Deliveries } from "./deliveries";
import { NewSecret } from "./new-secret";
import { useWebhookActions, webhooksQuery } from "./queries";

const EditWebhook = lazyPart(() => import("./edit-webhook"), "EditWebhook");

const route = getRouteApi("/t/$tenant/webhooks");

export function WebhooksPage() {
  const { data, error, refetch } = useQuery(webhooksQuery(useTenant()));
  const { add: adding = false } = route.useSearch();
  const navigate = route.useNavigate();
  const setAdding = (open: boolean) =>
    void navigate({ search: (now) => ({ ...now, add: open || undefined }), replace: true, resetScroll: false });
  const add = (
    <Button variant="primary" onClick={() => setAdding(true)} data-testid="add-webhook">
      <Plus /> Add webhook
    </Button>
  );
  return (
    <Page
      title="Webhooks"
      note="Signed notifications to your servers about adapters, quotas and exports. Failed deliveries are retried for almost three days."
      actions={data?.length ? add : null}
    >
      <ErrorNotice error={error} onRetry={refetch} />
      {!error && !data && (
        <Card>
          <SkeletonRows rows={3} />
        </Card>
      )}
      {data?.length === 0 && (
        <Card>
          <Empty icon={<Icon />} title="No webhooks yet" action={add}>
            Add a webhook to be notified when, for example, an adapter is ready.
          </Empty>
        </Card>
      )}
      <div className="grid gap-4">
        {data?.map((webhook) => (
          <WebhookCard key={webhook.id} webhook={webhook} />
        ))}
      </div>
      <Suspense>{adding && <EditWebhook onClose={() => setAdding(false)} />}</Suspense>
    </Page>
  );
}

function state(webhook: Webhook) {
  if (!webhook.active) return { tone: "neutral", label: "Paused" } as const;
  if (webhook.failures > 0) return { tone: "amber", label: `Failing, ${webhook.failures} in a row` } as const;
  return { tone: "green", label: "Active" } as const;
}

type Doing = "edit" | "rotate" | "delete" | null;

function WebhookCard({ webhook }: { webhook: Webhook }) {
  const [doing, setDoing] = useState<Doing>(null);
  const { test } = useWebhookActions(useTenant());
  const send = () =>
    test.mutate(webhook.id, { onSuccess: () => toast.good("Sent a test message"), onError: toast.bad });
  return (
    <Card>
      <div className="flex flex-wrap items-center gap-x-4 gap-y-2 border-b px-4 py-3">
        <div className="min-w-0 flex-1 max-xl:basis-full">
          <h2 className="font-mono text-sm font-medium wrap-anywhere">{webhook.url}</h2>
          <p className="text-xs wrap-anywhere text-ink-3">
            {webhook.description && `${webhook.description} · `}
            {webhook.events?.length ? webhook.events.join(", ") : "every event"}
          </p>
        </div>
        <Status {...state(webhook)} />
        <div className="-mr-1.5 -ml-2.5 flex items-center gap-1 xl:ml-0">
          <Button size="sm" variant="ghost" busy={test.isPending} onClick={send}>
            Send test
          </Button>
          <Button size="sm" variant="ghost" onClick={() => setDoing("edit")}>
            Edit
          </Button>
          <Button size="sm" variant="ghost" onClick={() => setDoing("rotate")}>
            Rotate secret
          </Button>
          <Button size="sm" variant="ghost" onClick={() => setDoing("delete")}>
            Delete
          </Button>
        </div>
      </div>
      <Deliveries webhook={webhook.id} />
      <Suspense>{doing === "edit" && <EditWebhook webhook={webhook} onClose={() => setDoing(null)} />}</Suspense>
      {doing === "rotate" && <Rotate webhook={webhook} onClose={() => setDoing(null)} />}
      {doing === "delete" && <Delete webhook={webhook} onClose={() => setDoing(null)} />}
    </Card>
  );
}

function Rotate({ webhook, onClose }: { webhook: Webhook; onClose: () => void }) {
  const { rotate } = useWebhookActions(useTenant());
  if (rotate.data)
    return (
      <NewSecret
        secret={rotate.data.secret}
        note="Messages are also signed with the old secret for one day."
        onClose={onClose}
      />
    );
  return (
    <Confirm
      onClose={onClose}
      title="Rotate the secret?"
      description="For one day, messages are signed with both secrets, so that your server can switch without missing a message."
      action="Rotate secret"
      write={rotate}
      onConfirm={() => rotate.mutate(webhook.id)}
    />
  );
}

function Delete({ webhook, onClose }: { webhook: Webhook; onClose: () => void }) {
  const { remove } = useWebhookActions(useTenant());
  return (
    <Confirm
      onClose={onClose}
      title="Delete this webhook?"
      description={`${webhook.url} receives no more messages, and its delivery log is deleted.`}
      action="Delete webhook"
      write={remove}
      onConfirm={() => remove.mutate(webhook.id, { onSuccess: onClose })}
    />
  );
}
