import { ChartNoAxesColumn, Download } from "lucide-react";
import { getRouteApi } from "@tanstack/react-router";
import { Suspense } from "react";
import type { RefusalSeries, SeriesReport } from "@/api/types";
import { Page } from "@/app/page";
import { useQuery } from "@/app/use-query";
import { BaseModelSelect } from "@/components/base-model-select";
import { Button } from "@/components/button";
import { Card, Stat, Stats } from "@/components/card";
import { Empty, ErrorNotice, Skeleton } from "@/components/notices";
import { TimeRangeControl, useTimeRange } from "@/components/time-range";
import { RelativeTime } from "@/components/relative-time";
import { useTenant } from "@/features/session/queries";
import { deviceTime, money, percent, short } from "@/lib/format";
import { snippet } from "@/lib/snippets";
import { daysOf, type RangeQuery, stepNote } from "@/lib/time-range";
import { useNow } from "@/lib/use-now";
import { lazyPart } from "@/lib/lazy-part";
import { BaseModelUsage } from "./breakdown";
import { ExportsCard } from "./exports-card";
import { LatencyTable } from "./latency";
import { RefusalsCard } from "./refusals-card";
import { refusalSeriesQuery, seriesQuery } from "./series";
import { StatementCard } from "./statement-card";
import { UsageParts } from "./usage-parts";

const SeriesCharts = lazyPart(() => import("./series-charts"), "SeriesCharts");

const route = getRouteApi("/t/$tenant/usage");

export function UsagePage() {
  const tenant = useTenant();
  const range = useTimeRange("30d");
  const now = useNow(60_000);
  const { base_model } = route.useSearch();
  const navigate = route.useNavigate();
  const { data, error, refetch } = useQuery(seriesQuery(tenant, range.query, { base_model }));
  const all = useQuery(seriesQuery(tenant, range.query)).data;
  const refusals = useQuery(refusalSeriesQuery(tenant, range.query));
  return (
    <Page
      title="Usage"
      note="Tokens over time, by adapter, API key and base model."
      actions={
        <>
          <BaseModelSelect
            value={base_model}
            names={recorded(all)}
            onChange={(chosen) =>
              void navigate({ search: (now) => ({ ...now, base_model: chosen }), resetScroll: false })
            }
            className="w-48!"
          />
          <TimeRangeControl range={range} />
          <Button asChild>
            <a href={`/api/tenants/${tenant}/usage.csv?${csvOf(daysOf(range.query, now), base_model)}`} download>
              <Download /> Download CSV
            </a>
          </Button>
        </>
      }
    >
      <div className="grid gap-5">
        <ErrorNotice error={error} onRetry={refetch} />
        {/* As tall as the screen: what comes below it does not jump. */}
        {!error && !data && <Skeleton className="h-dvh w-full" />}
        {data &&
          (data.totals.requests === 0 ? (
            <NoUsage />
          ) : (
            <Report
              report={data}
              range={range.query}
              base_model={base_model}
              refused={base_model ? undefined : refusals.data}
              onZoom={range.zoom}
              onZoomOut={range.zoomOut}
            />
          ))}
        <RefusalsCard query={refusals} range={range} />
        <StatementCard />
        <ExportsCard />
      </div>
    </Page>
  );
}

/** Returns the names of the base models that were used. */
const recorded = (report: SeriesReport | undefined) => (report?.by_base_model ?? []).flatMap(({ name }) => name ?? []);

const csvOf = (days: number, base_model: string | undefined) =>
  new URLSearchParams({ days: String(days), ...(base_model ? { base_model } : {}) }).toString();

function NoUsage() {
  return (
    <Card>
      <Empty
        icon={<ChartNoAxesColumn />}
        title="No usage in this time range"
        command={snippet("curl", { model: "lorikeet-demo", origin: location.origin })}
      >
        Tokens are counted when a request ends. Send a request to see its usage here.
      </Empty>
    </Card>
  );
}

interface ReportProps {
  report: SeriesReport;
  range: RangeQuery;
  base_model: string | undefined;
  refused: RefusalSeries | undefined;
  onZoom: (since: number, until: number) => void;
  onZoomOut: () => void;
}

function Report({ report, range, base_model, refused, onZoom, onZoomOut }: ReportProps) {
  const { totals, currency } = report;
  const total = totals.prompt_tokens + totals.completion_tokens;
  return (
    <div className="grid gap-5">
      <Stats>
        <Stat
          label="Requests"
          value={short(totals.requests)}
          note={refused?.total ? `${short(refused.total)} more were refused` : undefined}
        />
        <Stat
          label="Tokens"
          value={short(total)}
          note={`${percent(totals.prompt_tokens, total)} prompt, ${percent(totals.completion_tokens, total)} completion`}
        />
        <Stat label="GPU time" value={deviceTime(totals.device_us)} note="share of engine steps, by tokens" />
        <Stat
          label="Cost"
          value={money(totals.cost_micros, currency)}
          note={currency ? "without storage" : "no prices set"}
        />
      </Stats>
      <Card title="Over time" note={stepNote(report.step_s)} actions={<Freshness at={report.as_of} />}>
        <Suspense fallback={<Skeleton className="m-4 h-96" />}>
          <SeriesCharts report={report} refused={refused} onZoom={onZoom} onZoomOut={onZoomOut} />
        </Suspense>
      </Card>
      <UsageParts by="adapter" range={range} base_model={base_model} totals={totals} currency={currency} />
      <BaseModelUsage rows={report.by_base_model} totals={totals} currency={currency} />
      <UsageParts by="key" range={range} base_model={base_model} totals={totals} currency={currency} />
      <Card title="Latency" note="Answered requests only">
        <LatencyTable latency={totals.latency} />
      </Card>
    </div>
  );
}

/** The time of the last aggregation. Sums are usually a few seconds old, and the label shows if they are older. */
export function Freshness({ at }: { at: string | null }) {
  return (
    <span className="pr-1.5 text-xs text-ink-3">
      as of <RelativeTime at={at} never="never (no worker has aggregated it)" />
    </span>
  );
}
