import { queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { request } from "@/api/client";
import type { Device } from "@/api/types";
import { useQuery } from "@/app/use-query";
import { Badge } from "@/components/badge";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { Confirm } from "@/components/dialog";
import { ErrorNotice, SkeletonRows } from "@/components/notices";
import { RelativeTime } from "@/components/relative-time";
import { toast } from "@/components/toast";
import { deviceName } from "@/lib/device";
import { fullTime, plural } from "@/lib/format";

const devicesQuery = queryOptions({ queryKey: ["sessions"], queryFn: () => request("GET /api/sessions") });

function useEnd(what: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (id: string | null) =>
      id === null ? request("DELETE /api/sessions") : request("DELETE /api/sessions/{session_id}", { session_id: id }),
    onSuccess: () => {
      toast.good(what);
      return client.invalidateQueries({ queryKey: devicesQuery.queryKey });
    },
  });
}

/** The sessions of the person, with buttons that end them. */
export function DevicesCard() {
  const { data, error, refetch } = useQuery(devicesQuery);
  const [asking, setAsking] = useState(false);
  const end = useEnd("Signed out on all other devices");
  const others = data?.filter(({ current }) => !current).length ?? 0;
  return (
    <Card
      title="Devices"
      note="Devices where you are signed in"
      actions={
        others > 0 && (
          <Button size="sm" onClick={() => setAsking(true)} data-testid="end-others">
            Sign out everywhere else
          </Button>
        )
      }
    >
      <ErrorNotice error={error} onRetry={refetch} className="m-4" />
      {!error && !data && <SkeletonRows rows={2} />}
      {data && (
        <ul className="divide-y" aria-label="Devices">
          {data.map((device) => (
            <DeviceRow key={device.id} device={device} />
          ))}
        </ul>
      )}
      <Confirm
        open={asking}
        onClose={() => setAsking(false)}
        title="Sign out everywhere else?"
        description={`Ends ${plural(others, "other session")} immediately, and cancels what runs in ${others === 1 ? "its" : "their"} consoles. This device stays signed in. API keys are not affected.`}
        action="Sign out"
        write={{ error: null, isPending: end.isPending }}
        onConfirm={() => end.mutate(null, { onSettled: () => setAsking(false) })}
      />
    </Card>
  );
}

function DeviceRow({ device }: { device: Device }) {
  const name = deviceName(device.user_agent);
  const end = useEnd(`Signed out ${name}`);
  return (
    <li className="flex flex-wrap items-center gap-x-4 gap-y-1 px-4 py-2.5 text-sm">
      <div className="min-w-0 flex-1 basis-52">
        <p className="flex items-center gap-2 font-medium" title={device.user_agent}>
          <span className="truncate">{name}</span>
          {device.current && <Badge tone="green">This device</Badge>}
        </p>
        <p className="text-xs text-ink-3">
          <span className="break-all">{device.address || "Unknown address"}</span>, since {fullTime(device.created_at)}
        </p>
        <ErrorNotice error={end.error} className="mt-2" />
      </div>
      <p className="text-xs text-ink-3">
        last used <RelativeTime at={device.last_seen_at} />
      </p>
      {!device.current && (
        <Button
          size="sm"
          aria-label={`Sign out ${name}, ${device.address}`}
          busy={end.isPending}
          onClick={() => end.mutate(device.id)}
        >
          Sign out
        </Button>
      )}
    </li>
  );
}
