import type { Pin as PinState } from "@/api/types";
import { useQuery } from "@/app/use-query";
import { Badge } from "@/components/badge";
import { Card } from "@/components/card";
import { ErrorNotice, Skeleton } from "@/components/notices";
import { toast } from "@/components/toast";
import { useCan, useTenant } from "@/features/session/queries";
import { bytes } from "@/lib/format";
import { pinQuery, useSetPin } from "./queries";

/** A switch that keeps the live version in device memory, with the memory that it takes of the quota. */
export function Pin({ name }: { name: string }) {
  const tenant = useTenant();
  const { data, error, refetch } = useQuery(pinQuery(tenant, name));
  return (
    <Card
      aria-label="Pinned"
      title="Kept loaded"
      note="Keeps the live version in the device memory of its hosts, so that no request waits for it to load."
    >
      <ErrorNotice error={error} onRetry={refetch} className="m-4" />
      {!error && !data && <Skeleton className="m-4 h-12" />}
      {data && <PinSwitch name={name} pin={data} />}
    </Card>
  );
}

function PinSwitch({ name, pin }: { name: string; pin: PinState }) {
  const may = useCan("adapters.write");
  const set = useSetPin(useTenant(), name);
  const pinned = pin.pinned_at !== null;
  const change = (wanted: boolean) =>
    set.mutate(wanted, {
      onSuccess: () => toast.good(wanted ? `${name} is kept loaded` : `${name} is loaded when it is called`),
    });
  const blocked = whyNot(pin);
  return (
    <div className="grid gap-3 px-4 py-3 text-sm">
      <label className="flex items-start gap-2.5">
        <input
          type="checkbox"
          role="switch"
          checked={pinned}
          disabled={!may || (!pinned && blocked !== null)}
          onChange={(event) => !set.isPending && change(event.target.checked)}
          className="mt-0.5 size-4 shrink-0 accent-(--accent)"
        />
        <span>
          Keep {name} loaded
          <span className="block text-xs text-ink-3">{!pinned && blocked ? blocked : cost(pin)}</span>
        </span>
      </label>
      <ErrorNotice error={set.error} />
      {pinned && pin.hosts.length === 0 && (
        <p className="text-xs text-ink-3">
          No host has the live version now. It will be kept loaded on the next host that loads it.
        </p>
      )}
      {pinned && pin.hosts.length > 0 && (
        <ul className="flex flex-wrap gap-2" aria-label="Hosts">
          {pin.hosts.map((host) => (
            <li key={host.host}>
              <Badge tone={host.pinned ? "green" : "amber"}>
                {host.host}: {host.pinned ? "kept" : "not yet"}
              </Badge>
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

/** Returns the reason why the adapter cannot be pinned, as far as the server reported one. */
function whyNot(pin: PinState): string | null {
  if (!pin.limit_bytes) return "The operator has not granted this tenant device memory for pins.";
  if (pin.bytes === null || pin.hosts.length === 0) return "No live version is on a host yet.";
  return null;
}

function cost(pin: PinState): string {
  const quota = `${bytes(pin.used_bytes)} of ${bytes(pin.limit_bytes ?? 0)} are used by pinned adapters and prefixes`;
  return pin.bytes === null ? quota : `It takes ${bytes(pin.bytes)} of each host; ${quota}.`;
}
