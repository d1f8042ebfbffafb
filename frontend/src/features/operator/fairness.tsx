import { getRouteApi } from "@tanstack/react-router";
import { Suspense, useState } from "react";
import type { HostFairness, ServiceGap } from "@/api/types";
import { useQuery } from "@/app/use-query";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { ErrorNotice, Skeleton, SkeletonRows } from "@/components/notices";
import { useTimeRange } from "@/components/time-range";
import { Shares, tenantRows } from "@/features/hosts/shares";
import { short } from "@/lib/format";
import { lazyPart } from "@/lib/lazy-part";
import { MAX_HOSTS_IN_FULL, HostSelect } from "./host-select";
import { allHostsQuery, fairnessQuery } from "./queries";

const TimeChart = lazyPart(() => import("@/components/time-chart"), "TimeChart");

const route = getRouteApi("/t/$tenant/operator/hosts");

const ofBound = (percent: number) => `${percent < 10 ? percent.toFixed(1) : Math.round(percent)}%`;

/** The current shares of tenants on each engine, and the gap in service between waiting tenants over time. */
export function FairShares() {
  const { data, error, refetch } = useQuery(allHostsQuery);
  const { shares: chosen } = route.useSearch();
  const navigate = route.useNavigate();
  const choose = (host: string | undefined) =>
    void navigate({ search: (now) => ({ ...now, shares: host }), replace: true, resetScroll: false });
  const hosts = (data ?? []).filter(({ shares }) => shares?.length);
  const many = hosts.length > MAX_HOSTS_IN_FULL;
  // The default is the host with the most waiting requests.
  const first = hosts.find(({ name }) => name === chosen) ?? hosts.toSorted((a, b) => b.waiting - a.waiting)[0];
  const shown = many && first ? [first] : hosts;
  return (
    <Card
      aria-label="Fair shares"
      title="Fair shares"
      note="Owed: share by weight among tenants with requests in the engine. Received: share of the last 10 to 20 s. Ahead: priced tokens per weight more than the least served tenant."
      actions={
        many &&
        first && (
          <HostSelect
            label="Host whose shares are shown"
            names={hosts.map(({ name }) => name)}
            value={first.name}
            onChange={choose}
          />
        )
      }
    >
      <ErrorNotice error={error} onRetry={refetch} className="m-4" />
      {!error && !data && <SkeletonRows rows={2} />}
      {data && hosts.length === 0 && (
        <p className="px-4 py-6 text-sm text-ink-3">No tenant has a request in an engine.</p>
      )}
      {shown.map(({ name, shares = [] }) => (
        <section key={name} aria-label={`Shares on ${name}`} className="border-t first:border-0">
          {hosts.length > 1 && <h3 className="px-4 pt-3 text-xs font-medium text-ink-3">{name}</h3>}
          <Shares
            label={`Tenants on ${name}`}
            noun="Tenant"
            rows={tenantRows(shares)}
            ahead={Object.fromEntries(shares.map(({ tenant, ahead }) => [tenant, ahead]))}
          />
        </section>
      ))}
      <Gaps />
    </Card>
  );
}

const widestOf = ({ points }: HostFairness) => Math.max(0, ...points.map(({ widest }) => widest?.share ?? 0));

/** Returns the hosts, those with the largest gap first if there are many. */
const nearest = (hosts: HostFairness[]) =>
  hosts.length > MAX_HOSTS_IN_FULL ? hosts.toSorted((a, b) => widestOf(b) - widestOf(a)) : hosts;

function Gaps() {
  const range = useTimeRange("1h");
  const [all, setAll] = useState(false);
  const { data, error, refetch } = useQuery(fairnessQuery(range.query));
  return (
    <section aria-label="Service gap" className="border-t p-4">
      <h3 className="text-sm font-semibold">Service gap</h3>
      <p className="mt-1 max-w-3xl text-xs text-ink-3">
        The difference in service per weight between two tenants that both waited and could run, as a share of what fair
        scheduling allows: twice the cost of the longest prompt or of a full pool, whichever is larger (the bound of
        VTC), plus slack. Shows the largest gap of each step, sampled with every heartbeat.
      </p>
      <ErrorNotice error={error} onRetry={refetch} className="mt-3" />
      {!error && !data && <Skeleton className="mt-3 h-44" />}
      {data?.hosts.length === 0 && (
        <p className="mt-3 text-sm text-ink-3">No two tenants waited on the same host in this time range.</p>
      )}
      {data &&
        nearest(data.hosts)
          .slice(0, all ? undefined : MAX_HOSTS_IN_FULL)
          .map((host) => (
            <HostGap key={host.name} host={host} stepS={data.step_s} onZoom={range.zoom} onZoomOut={range.zoomOut} />
          ))}
      {data && !all && data.hosts.length > MAX_HOSTS_IN_FULL && (
        <Button size="sm" className="mt-4" onClick={() => setAll(true)}>
          Show {data.hosts.length - MAX_HOSTS_IN_FULL} more
        </Button>
      )}
    </section>
  );
}

interface HostGapProps {
  host: HostFairness;
  stepS: number;
  onZoom: (since: number, until: number) => void;
  onZoomOut: () => void;
}

function HostGap({ host, stepS, onZoom, onZoomOut }: HostGapProps) {
  const widest = host.points.map((point) => point.widest).filter((gap) => gap !== null);
  const largest = widest.toSorted((a, b) => b.share - a.share)[0];
  return (
    <div className="mt-4">
      <p className="mb-3 text-sm">
        <span className="font-medium break-all">{host.name}</span>:{" "}
        {host.now ? `now ${describe(host.now)}` : "no two tenants are waiting"}
        {largest && `; at most ${describe(largest)}`}.
      </p>
      {largest && (
        <Suspense fallback={<Skeleton className="h-44" />}>
          <TimeChart
            title="Largest gap, share of its bound"
            at={host.points.map(({ at }) => Date.parse(at))}
            stepS={stepS}
            kind="lines"
            format={ofBound}
            series={[
              {
                key: "share",
                label: "of the bound",
                color: 1,
                values: host.points.map((point) => (point.widest ? point.widest.share * 100 : null)),
              },
            ]}
            line={{ value: 100, label: "bound" }}
            onZoom={onZoom}
            onZoomOut={onZoomOut}
          />
        </Suspense>
      )}
    </div>
  );
}

/** Returns a sentence such as "acme 1,200 priced tokens per weight ahead of globex, 12% of the bound 10K". */
const describe = ({ gap, bound, share, ahead, behind }: ServiceGap) =>
  `${ahead} ${short(Math.round(gap))} priced tokens per weight ahead of ${behind}, ${ofBound(share * 100)} of the bound ${short(Math.round(bound))}`;
