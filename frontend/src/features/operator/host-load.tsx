import { getRouteApi } from "@tanstack/react-router";
import { Suspense } from "react";
import type { SeriesPart, SeriesReport } from "@/api/types";
import { useQuery } from "@/app/use-query";
import { Card } from "@/components/card";
import { Select } from "@/components/field";
import { ErrorNotice, Skeleton } from "@/components/notices";
import { Table, Td, Tr } from "@/components/table";
import { TimeRangeControl, useTimeRange } from "@/components/time-range";
import { RefusalsCard } from "@/features/usage/refusals-card";
import { operatorRefusalSeriesQuery, operatorSeriesQuery } from "@/features/usage/series";
import { deviceTime, milliseconds, number, percent } from "@/lib/format";
import { lazyPart } from "@/lib/lazy-part";

const TimeChart = lazyPart(() => import("@/components/time-chart"), "TimeChart");
const SeriesCharts = lazyPart(() => import("@/features/usage/series-charts"), "SeriesCharts");

const route = getRouteApi("/t/$tenant/operator/hosts");

/** The requests of all hosts or of one over time, by tenant. */
export function HostLoad() {
  const range = useTimeRange("1h");
  const { load: host = "" } = route.useSearch();
  const navigate = route.useNavigate();
  const setHost = (load: string) =>
    void navigate({ search: (now) => ({ ...now, load: load || undefined }), resetScroll: false });
  const hosts = useQuery(operatorSeriesQuery(range.query)).data?.by_host ?? [];
  const { data, error, refetch } = useQuery(operatorSeriesQuery(range.query, host ? { host } : {}));
  // Refused requests reached no host, so they are shown only for all hosts together.
  const refusals = useQuery({ ...operatorRefusalSeriesQuery(range.query), enabled: !host });
  const names = [...new Set([...hosts.map(({ name }) => name ?? ""), host])].filter(Boolean).toSorted();
  return (
    <>
      <Card
        aria-label="Load"
        title="Load"
        note="Requests by arrival time. Drag across a chart to zoom."
        actions={
          <>
            <div className="w-36">
              <Select
                aria-label="Host"
                value={host}
                onChange={(event) => setHost(event.target.value)}
                options={[["", "All hosts"], ...names]}
              />
            </div>
            <TimeRangeControl range={range} />
          </>
        }
      >
        <ErrorNotice error={error} onRetry={refetch} className="m-4" />
        {!error && !data && <Skeleton className="m-4 h-80" />}
        {data && data.totals.requests === 0 && (
          <p className="px-4 py-6 text-sm text-ink-3">No requests ended in an engine in this time range.</p>
        )}
        {data && data.totals.requests > 0 && (
          <>
            <Suspense fallback={<Skeleton className="m-4 h-80" />}>
              <SeriesCharts
                report={data}
                refused={host ? undefined : refusals.data}
                onZoom={range.zoom}
                onZoomOut={range.zoomOut}
              />
            </Suspense>
            {!host && <Parts title="By host" noun="Host" rows={data.by_host} whole={data.totals.device_us} />}
            <FairnessChart report={data} onZoom={range.zoom} onZoomOut={range.zoomOut} />
            <Parts title="By tenant" noun="Tenant" rows={data.by_tenant} whole={data.totals.device_us} />
          </>
        )}
      </Card>
      {!host && <RefusalsCard query={refusals} range={range} />}
    </>
  );
}

const COLORS = [1, 2, 3, 4] as const;

/** GPU time per weight: equal lines are fair while all tenants have waiting requests. */
function FairnessChart({
  report,
  onZoom,
  onZoomOut,
}: {
  report: SeriesReport;
  onZoom: (since: number, until: number) => void;
  onZoomOut: () => void;
}) {
  const largest = report.by_tenant.toSorted((a, b) => b.device_us - a.device_us).slice(0, COLORS.length);
  if (largest.length < 2) return null;
  const series = largest.map((row, index) => ({
    key: row.tenant ?? "",
    label: row.name ?? "",
    color: COLORS[index] ?? 4,
    values: row.device_us_by_step.map((us) => us / (row.weight ?? 1)),
  }));
  return (
    <div className="border-t p-4">
      <Suspense fallback={<Skeleton className="h-44" />}>
        <TimeChart
          title="GPU time per weight, tenants with the most"
          at={report.points.map(({ at }) => Date.parse(at))}
          stepS={report.step_s}
          series={series}
          kind="lines"
          format={deviceTime}
          onZoom={onZoom}
          onZoomOut={onZoomOut}
        />
      </Suspense>
    </div>
  );
}

function Parts({ title, noun, rows, whole }: { title: string; noun: string; rows: SeriesPart[]; whole: number }) {
  return (
    <div className="border-t">
      <Table
        label={`Load ${title.toLowerCase()}`}
        columns={[
          noun,
          ["Requests", "text-right"],
          ["Failed", "text-right"],
          ["Tokens", "text-right"],
          ["GPU time", "text-right"],
          ["Share", "text-right"],
          ["First token P95", "text-right"],
        ]}
      >
        {rows.map((row) => (
          <Tr key={row.tenant ?? row.name}>
            <Td className="max-w-64 truncate font-medium">{row.name}</Td>
            <Td className="tnum text-right">{number(row.requests)}</Td>
            <Td className="tnum text-right">{number(row.outcomes.failed + row.outcomes.refused)}</Td>
            <Td className="tnum text-right">{number(row.prompt_tokens + row.completion_tokens)}</Td>
            <Td className="tnum text-right">{deviceTime(row.device_us)}</Td>
            <Td className="tnum text-right">{percent(row.device_us, whole)}</Td>
            <Td className="tnum text-right">
              {row.latency.first_token.p95_ms === null ? "–" : milliseconds(row.latency.first_token.p95_ms)}
            </Td>
          </Tr>
        ))}
      </Table>
    </div>
  );
}
