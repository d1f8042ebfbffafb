import { Gauge } from "lucide-react";
import { Suspense, useState } from "react";
import type { Attainment, BurnRate, SloReport } from "@/api/types";
import { Page } from "@/app/page";
import { useQuery } from "@/app/use-query";
import { Button } from "@/components/button";
import { Card, Stat, Stats } from "@/components/card";
import { Empty, ErrorNotice, Skeleton } from "@/components/notices";
import { TimeRangeControl, useTimeRange } from "@/components/time-range";
import { useCan, useTenant } from "@/features/session/queries";
import { RefusalsCard } from "@/features/usage/refusals-card";
import { refusalSeriesQuery, seriesQuery } from "@/features/usage/series";
import { Freshness } from "@/features/usage/usage-page";
import { cn } from "@/lib/cn";
import { day, milliseconds, number, plural, short } from "@/lib/format";
import { snippet } from "@/lib/snippets";
import { daysOf, stepNote } from "@/lib/time-range";
import { useNow } from "@/lib/use-now";
import { lazyPart } from "@/lib/lazy-part";
import { sloQuery } from "./queries";

const EditSlo = lazyPart(() => import("./edit-slo"), "EditSlo");

const SeriesCharts = lazyPart(() => import("@/features/usage/series-charts"), "SeriesCharts");

type TimeRange = ReturnType<typeof useTimeRange>;

export function SloPage() {
  const range = useTimeRange("30d");
  const days = daysOf(range.query, useNow(60_000));
  const [editing, setEditing] = useState(false);
  const { data, error, refetch } = useQuery(sloQuery(useTenant(), Math.min(90, days)));
  const may = useCan("tenant.write");
  return (
    <Page
      title="Fairness & SLO"
      note="Latency objectives of this tenant, how often they were met, and its weight when hosts are full."
      actions={
        <>
          <TimeRangeControl range={range} />
          {may && data && (
            <Button onClick={() => setEditing(true)} data-testid="slo-edit">
              Set objectives
            </Button>
          )}
        </>
      }
    >
      <div className="grid gap-5">
        <ErrorNotice error={error} onRetry={refetch} />
        {!error && !data && <Skeleton className="h-96 w-full" />}
        {data && <Report slo={data} range={range} />}
      </div>
      <Suspense>{editing && data && <EditSlo slo={data} onClose={() => setEditing(false)} />}</Suspense>
    </Page>
  );
}

function Report({ slo, range }: { slo: SloReport; range: TimeRange }) {
  const refusals = useQuery(refusalSeriesQuery(useTenant(), range.query));
  // Refusals are a separate query. Until it has loaded, the page does not say that there was no traffic.
  if (slo.requests === 0 && refusals.isPending) return <Skeleton className="h-96 w-full" />;
  if (slo.requests === 0 && refusals.data?.total === 0) return <Nothing slo={slo} />;
  return (
    <>
      <Stats>
        <Stat label="Weight" value={slo.weight} note="set by the operator" />
        <Stat label="Target" value={share(slo.target)} note="of requests should meet each objective" />
        <Stat
          label="Requests"
          value={short(slo.requests)}
          note={slo.failed ? `${short(slo.failed)} failed and count as missed` : undefined}
        />
        <Stat
          label="Average time in queue"
          value={slo.mean_queue_ms == null ? "–" : milliseconds(slo.mean_queue_ms)}
          note="before an engine started them"
        />
      </Stats>
      <Latencies slo={slo} range={range} />
      <Metric title="Time to first token" slo={slo} metric={slo.first_token} />
      <Metric title="Inter-token latency" slo={slo} metric={slo.inter_token} />
      <RefusalsCard query={refusals} range={range} />
    </>
  );
}

function Latencies({ slo, range }: { slo: SloReport; range: TimeRange }) {
  const { data, error, refetch } = useQuery(seriesQuery(useTenant(), range.query));
  return (
    <Card aria-label="Latency over time" title="Latency over time" note={data && stepNote(data.step_s)}>
      <ErrorNotice error={error} onRetry={refetch} className="m-4" />
      {!error && !data && <Skeleton className="m-4 h-44" />}
      {data && (
        <Suspense fallback={<Skeleton className="m-4 h-44" />}>
          <SeriesCharts
            report={data}
            onZoom={range.zoom}
            onZoomOut={range.zoomOut}
            show={["first_token", "inter_token"]}
            objectives={{ first_token: slo.first_token_ms, inter_token: slo.inter_token_ms }}
          />
        </Suspense>
      )}
    </Card>
  );
}

function Nothing({ slo: { first_token_ms: first, inter_token_ms: inter, target } }: { slo: SloReport }) {
  const set = [
    first != null && `the first token within ${milliseconds(first)}`,
    inter != null && `${milliseconds(inter)} between tokens`,
  ]
    .filter(Boolean)
    .join(" and ");
  return (
    <Card>
      <Empty
        icon={<Gauge />}
        title="No measurements in this time range"
        command={snippet("curl", { model: "lorikeet-demo", origin: location.origin })}
      >
        Send a request to see its latency here.{" "}
        {set
          ? `The objective has no measurements yet: ${set}, for ${share(target)} of requests.`
          : "You can set objectives before that."}
      </Empty>
    </Card>
  );
}

function Metric({ title, slo, metric }: { title: string; slo: SloReport; metric: Attainment }) {
  const { budget, percentiles: p } = metric;
  const missed = metric.attainment !== null && metric.attainment < slo.target;
  return (
    <Card
      title={title}
      note={
        metric.objective_ms === null
          ? "No objective set"
          : `Objective: ${milliseconds(metric.objective_ms)}. Attainment of the last ${plural(slo.days, "day")} (UTC), including today.`
      }
      actions={<Freshness at={slo.as_of} />}
    >
      <dl className="grid gap-px bg-line sm:grid-cols-2 xl:grid-cols-4">
        <Figure
          label="Attainment"
          value={metric.attainment === null ? "–" : share(metric.attainment)}
          bad={missed}
          note={met(metric)}
        />
        <Figure
          label="Error budget left"
          value={budget?.left == null ? "–" : budget.left < 0 ? "overdrawn" : share(budget.left)}
          bad={budget?.left != null && budget.left <= 0}
          note={
            metric.measured === 0
              ? NOT_MEASURED
              : budget
                ? `${number(budget.missed)} missed of ${allowed(budget.allowed)} allowed`
                : "needs an objective"
          }
        />
        <Figure
          label="Median"
          value={time(p.p50_ms)}
          note={p.p50_ms === null ? NOT_MEASURED : "half of the requests are faster"}
        />
        <Figure label="P99" value={time(p.p99_ms)} note={p.p95_ms === null ? NOT_MEASURED : `P95 ${time(p.p95_ms)}`} />
      </dl>
      {metric.objective_ms !== null && <BurnRates title={title} rates={metric.burn} />}
      {metric.objective_ms !== null && <Days metric={metric} target={slo.target} title={title} />}
    </Card>
  );
}

function Figure({ label, value, note, bad }: { label: string; value: string; note: string; bad?: boolean }) {
  return (
    <div className="bg-surface px-4 py-3.5">
      <dt className="text-xs text-ink-3">{label}</dt>
      <dd className={cn("tnum mt-1 text-2xl font-semibold tracking-tight", bad && "text-danger-text")}>{value}</dd>
      <dd className="mt-0.5 text-xs text-ink-3">{note}</dd>
    </div>
  );
}

const SPANS: Record<string, string> = {
  "1h": "last hour",
  "6h": "last 6 hours",
  "1d": "last day",
  "7d": "last 7 days",
};

/** The burn rates of the error budget: at 1 it is used up exactly. */
function BurnRates({ title, rates }: { title: string; rates: BurnRate[] }) {
  return (
    <dl aria-label={`${title}: burn rate`} className="grid grid-cols-2 gap-px border-t bg-line sm:grid-cols-4">
      {rates.map(({ window, rate, missed, measured }) => (
        <div key={window} className="bg-surface px-4 py-2.5">
          <dt className="text-xs text-ink-3">Burn rate, {SPANS[window] ?? window}</dt>
          <dd
            className={cn(
              "tnum mt-0.5 text-lg font-semibold tracking-tight",
              rate !== null && rate > 1 && "text-danger-text",
            )}
          >
            {rate === null ? "–" : `${times(rate)}×`}
          </dd>
          <dd className="text-xs text-ink-3">
            {measured === 0 ? "nothing measured" : `${number(missed ?? 0)} missed of ${number(measured)}`}
          </dd>
        </div>
      ))}
    </dl>
  );
}

const times = (rate: number) => (rate < 10 ? rate.toFixed(1) : number(Math.round(rate)));

/** A square per day: target met, missed (redder with more misses), or nothing measured. The label has the figure. */
function Days({ metric, target, title }: { metric: Attainment; target: number; title: string }) {
  return (
    <div className="border-t px-4 py-3.5">
      <ul aria-label={`${title} by day`} className="flex gap-0.5 sm:gap-1">
        {metric.by_day.map((row) => (
          <li
            key={row.date}
            title={label(row, target)}
            className={cn("h-8 min-w-0 flex-1 rounded-[3px]", tone(row.attainment, target))}
          >
            <span className="sr-only">{label(row, target)}</span>
          </li>
        ))}
      </ul>
      <div className="mt-1.5 flex justify-between text-2xs text-ink-3">
        <span>{metric.by_day[0] && day(metric.by_day[0].date)}</span>
        <span>target met, missed, or nothing measured</span>
        <span>today (UTC)</span>
      </div>
    </div>
  );
}

/** Returns a multiple of the misses that the target allows. */
const overspent = (attainment: number, target: number) => (1 - attainment) / (1 - target);

function label(row: Attainment["by_day"][number], target: number) {
  if (row.attainment === null) return `${day(row.date)}: nothing measured`;
  const red = row.attainment < target ? `, ${times(overspent(row.attainment, target))}× the misses allowed` : "";
  return `${day(row.date)}: ${share(row.attainment)} of ${number(row.measured)} requests${red}`;
}

function tone(attainment: number | null, target: number) {
  if (attainment === null) return "bg-fill-2";
  if (attainment >= target) return "bg-series-1";
  const spent = overspent(attainment, target);
  return spent > 10 ? "bg-danger" : spent > 3 ? "bg-danger/75" : "bg-danger/50";
}

const time = (value: number | null) => (value === null ? "–" : milliseconds(value));

/** Returns the allowed misses. Below one, the fraction is shown instead of 0. */
const allowed = (misses: number) => (misses < 10 ? String(Math.floor(misses * 10) / 10) : number(Math.floor(misses)));

const NOT_MEASURED = "nothing measured in this time";

const met = ({ objective_ms, met, measured }: Attainment) =>
  objective_ms !== null && measured === 0
    ? NOT_MEASURED
    : met === null
      ? "needs an objective"
      : `${number(met)} of ${number(measured)} answered requests`;

/** Returns a percentage that is cut, never rounded up: 99.99 % is not 100 %. */
export function share(value: number): string {
  return `${(Math.floor(value * 10_000 + 1e-6) / 100).toFixed(2).replace(/\.?0+$/, "")}%`;
}
