import { Suspense } from "react";
import { useQuery } from "@/app/use-query";
import { ErrorNotice, Skeleton } from "@/components/notices";
import type { useTimeRange } from "@/components/time-range";
import { useTenant } from "@/features/session/queries";
import { operatorSeriesQuery, seriesQuery } from "@/features/usage/series";
import { lazyPart } from "@/lib/lazy-part";

const SeriesCharts = lazyPart(() => import("@/features/usage/series-charts"), "SeriesCharts");

interface HostTrafficProps {
  host: string;
  range: ReturnType<typeof useTimeRange>;
  /** Shows the requests of all tenants; by default only the tenant's. */
  everybody?: boolean;
}

/** The requests that ended on a host over time. */
export function HostTraffic({ host, range, everybody }: HostTrafficProps) {
  const tenant = useTenant();
  const tenantSeries = useQuery({ ...seriesQuery(tenant, range.query, { host }), enabled: !everybody });
  const operatorSeries = useQuery({ ...operatorSeriesQuery(range.query, { host }), enabled: everybody === true });
  const { data, error, refetch } = everybody ? operatorSeries : tenantSeries;
  return (
    <div className="border-t">
      <h3 className="px-4 pt-3 text-xs font-medium text-ink-3">
        {everybody ? "All requests on this host" : "Your requests on this host"}
      </h3>
      <ErrorNotice error={error} onRetry={refetch} className="m-4" />
      {!error && !data && <Skeleton className="m-4 h-44" />}
      {data && data.totals.requests === 0 && (
        <p className="px-4 pt-1 pb-3 text-sm text-ink-3">No requests in this time range.</p>
      )}
      {data && data.totals.requests > 0 && (
        <Suspense fallback={<Skeleton className="m-4 h-44" />}>
          <SeriesCharts report={data} onZoom={range.zoom} onZoomOut={range.zoomOut} show={["tokens", "first_token"]} />
        </Suspense>
      )}
    </div>
  );
}
