import { Server } from "lucide-react";
import { Page } from "@/app/page";
import { useQuery } from "@/app/use-query";
import { Card } from "@/components/card";
import { Empty, ErrorNotice, Skeleton } from "@/components/notices";
import { TimeRangeControl, useTimeRange } from "@/components/time-range";
import { useTenant } from "@/features/session/queries";
import { HostCard } from "./host-card";
import { HostList } from "./host-list";
import { hostsQuery } from "./queries";

/** Maximum number of hosts that are all shown in full; of more, only the selected one. */
const MAX_HOSTS_IN_FULL = 3;

export function HostsPage() {
  const { data, error, refetch } = useQuery(hostsQuery(useTenant()));
  const range = useTimeRange("1h");
  return (
    <Page
      title="Hosts & GPUs"
      note="All engine processes and how each memory pool is divided between KV cache and adapters."
      actions={<TimeRangeControl range={range} />}
    >
      <ErrorNotice error={error} onRetry={refetch} />
      {!error && !data && <Skeleton className="h-80 w-full" />}
      {data?.length === 0 && <NoHosts />}
      {data && data.length > MAX_HOSTS_IN_FULL && <HostList hosts={data} range={range} />}
      {data && data.length <= MAX_HOSTS_IN_FULL && (
        <div className="grid gap-5">
          {data.map((host) => (
            <HostCard key={host.name} host={host} range={range} />
          ))}
        </div>
      )}
    </Page>
  );
}

function NoHosts() {
  return (
    <Card>
      <Empty
        icon={<Server />}
        title="No engine host yet"
        command="python -m lora_engine --model demo/model --listen unix:var/engine.sock --data-dir var/engine"
      >
        Start an engine and name its address in <code className="font-mono text-xs">LORIKEET_ENGINE_HOSTS</code>.{" "}
        <code className="font-mono text-xs">make run</code> does both.
      </Empty>
    </Card>
  );
}
