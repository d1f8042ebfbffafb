import { getRouteApi } from "@tanstack/react-router";
import { RotateCw } from "lucide-react";
import { useState } from "react";
import type { Delivery } from "@/api/types";
import { useQuery } from "@/app/use-query";
import { Status, type Tone } from "@/components/badge";
import { Button } from "@/components/button";
import { CodeBlock } from "@/components/code-block";
import { ExpandableRow } from "@/components/expandable-row";
import { ErrorNotice, SkeletonRows } from "@/components/notices";
import { RelativeTime } from "@/components/relative-time";
import { toast } from "@/components/toast";
import { useTenant } from "@/features/session/queries";
import { cn } from "@/lib/cn";
import { fullTime, milliseconds } from "@/lib/format";
import { deliveriesQuery, useWebhookActions } from "./queries";

const STATES: Record<Delivery["state"], { tone: Tone; label: string; live?: boolean }> = {
  pending: { tone: "blue", label: "Sending", live: true },
  delivered: { tone: "green", label: "Delivered" },
  failed: { tone: "danger", label: "Failed" },
};
const RETRYING = { tone: "amber", label: "Retrying", live: true } as const;
const SHOWN = 8;

const route = getRouteApi("/t/$tenant/webhooks");

/** The latest deliveries to an endpoint. Each opens to show its body and every attempt. */
export function Deliveries({ webhook }: { webhook: string }) {
  const { data, error, refetch } = useQuery(deliveriesQuery(useTenant(), webhook));
  const chosen = route.useSearch().delivery;
  const [more, setMore] = useState(false);
  const all = more || (data?.findIndex(({ id }) => id === chosen) ?? 0) >= SHOWN;
  if (error) return <ErrorNotice error={error} onRetry={refetch} className="m-4" />;
  if (!data) return <SkeletonRows rows={2} />;
  if (data.length === 0)
    return (
      <p className="px-4 py-5 text-center text-sm text-ink-3">
        No deliveries yet. Choose “Send test” to check that the endpoint is reachable.
      </p>
    );
  return (
    <>
      <ul className="divide-y" aria-label="Deliveries">
        {data.slice(0, all ? undefined : SHOWN).map((delivery) => (
          <Row key={delivery.id} webhook={webhook} delivery={delivery} />
        ))}
      </ul>
      {data.length > SHOWN && !all && (
        <div className="border-t p-1.5 text-center">
          <Button size="sm" variant="ghost" onClick={() => setMore(true)}>
            Show {data.length - SHOWN} more
          </Button>
        </div>
      )}
    </>
  );
}

function Row({ webhook, delivery }: { webhook: string; delivery: Delivery }) {
  const open = route.useSearch().delivery === delivery.id;
  const navigate = route.useNavigate();
  const toggle = () =>
    void navigate({
      search: (now) => ({ ...now, delivery: open ? undefined : delivery.id }),
      replace: true,
      resetScroll: false,
    });
  return (
    <ExpandableRow open={open} onToggle={toggle} details={<Detail webhook={webhook} delivery={delivery} />}>
      <span className="w-40 truncate font-medium">{delivery.type}</span>
      <Status {...(delivery.state === "pending" && delivery.attempts > 0 ? RETRYING : STATES[delivery.state])} />
      <span className="tnum hidden min-w-0 truncate text-xs text-ink-3 sm:inline">{lastResult(delivery)}</span>
      <span className="ml-auto text-xs whitespace-nowrap text-ink-3">
        <RelativeTime at={delivery.created_at} />
      </span>
    </ExpandableRow>
  );
}

function lastResult({ log, attempts }: Delivery): string {
  const last = log[0];
  if (!last) return "not sent yet";
  return attempts > 1 ? `${result(last)} (attempt ${attempts})` : result(last);
}

const result = ({ status, error, duration_ms }: Delivery["log"][number]) =>
  status === null ? error : `answered HTTP ${status} in ${milliseconds(duration_ms)}`;

function Detail({ webhook, delivery }: { webhook: string; delivery: Delivery }) {
  const { replay } = useWebhookActions(useTenant());
  const again = () =>
    replay.mutate(
      { id: webhook, delivery: delivery.id },
      { onSuccess: () => toast.good("Delivery restarted"), onError: toast.bad },
    );
  return (
    <div className="grid gap-3 border-t bg-fill/40 px-4 py-3.5 lg:grid-cols-2">
      <CodeBlock code={JSON.stringify(delivery.payload, null, 2)} label="Payload" />
      <div className="min-w-0">
        <ol className="grid gap-1.5 text-xs" aria-label="Attempts">
          {delivery.log.map((attempt) => (
            <li key={attempt.at} className="flex gap-3">
              <time dateTime={attempt.at} className="tnum shrink-0 text-ink-3">
                {fullTime(attempt.at)}
              </time>
              <span
                className={cn(
                  "min-w-0 break-words",
                  attempt.status !== null && attempt.status < 300 ? "text-accent-text" : "text-danger-text",
                )}
              >
                {result(attempt)}
              </span>
            </li>
          ))}
        </ol>
        {delivery.state === "pending" && delivery.attempts > 0 && (
          <p className="mt-2 text-xs text-ink-3">Next attempt {fullTime(delivery.next_attempt_at)}.</p>
        )}
        {delivery.state === "failed" && (
          <p className="mt-2 text-xs text-ink-3">All attempts failed, so it is not retried automatically.</p>
        )}
        <Button size="sm" className="mt-3" busy={replay.isPending} onClick={again}>
          <RotateCw />
          Retry delivery
        </Button>
      </div>
    </div>
  );
}
