import { useQuery } from "@tanstack/react-query";
import { Gauge } from "lucide-react";
import { lazy, Suspense, useState } from "react";
import { asApiError } from "@/api/errors";
import type { Attainment, SloReport } from "@/api/types";
import { Page } from "@/app/page";
import { Button } from "@/components/button";
import { Card, CardHeader, Stat, Stats } from "@/components/card";
import { Empty, ErrorNotice, Skeleton } from "@/components/notices";
import { SegmentedControl } from "@/components/segmented-control";
import { useCan, useTenant } from "@/features/session/queries";
import { Freshness } from "@/features/usage/usage-page";
import { cn } from "@/lib/cn";
import { day, milliseconds, number, short } from "@/lib/format";
import { snippet } from "@/lib/snippets";
import { sloQuery } from "./queries";

const EditSlo = lazy(async () => ({ default: (await import("./edit-slo")).EditSlo }));

const RANGES = [
  { value: "7", label: "7 days" },
  { value: "30", label: "30 days" },
  { value: "90", label: "90 days" },
] as const;

export function SloPage() {
  const [range, setRange] = useState<"7" | "30" | "90">("30");
  const [editing, setEditing] = useState(false);
  const { data, error, refetch } = useQuery(sloQuery(useTenant(), Number(range)));
  const may = useCan("tenant.write");
  return (
    <Page
      title="Fairness & SLO"
      note="How soon answers should begin and go on, how often they did, and what this tenant weighs when the hosts are full."
      actions={
        <>
          <SegmentedControl label="Range" value={range} options={RANGES} onChange={setRange} />
          {may && data && (
            <Button onClick={() => setEditing(true)} data-testid="slo-edit">
              Set objectives
            </Button>
          )}
        </>
      }
    >
      <div className="grid gap-5">
        {error && <ErrorNotice error={asApiError(error)} onRetry={() => void refetch()} />}
        {!error && !data && <Skeleton className="h-96 w-full" />}
        {data && <Report slo={data} />}
      </div>
      <Suspense>{editing && data && <EditSlo slo={data} onClose={() => setEditing(false)} />}</Suspense>
    </Page>
  );
}

function Report({ slo }: { slo: SloReport }) {
  if (slo.requests === 0) return <Nothing />;
  return (
    <>
      <Stats>
        <Stat label="Weight" value={slo.weight} note="beside other tenants; set by the operator" />
        <Stat label="Target" value={share(slo.target)} note="of requests should meet each objective" />
        <Stat label="Requests" value={short(slo.requests)} note={slo.failed ? `${short(slo.failed)} failed and met no objective` : undefined} />
        <Stat label="Mean time in the queue" value={slo.mean_queue_ms == null ? "–" : milliseconds(slo.mean_queue_ms)} note="before the engine took them" />
      </Stats>
      <Metric title="Time to first token" slo={slo} metric={slo.first_token} />
      <Metric title="Inter-token latency" slo={slo} metric={slo.inter_token} />
    </>
  );
}

function Nothing() {
  return (
    <Card>
      <Empty icon={<Gauge />} title="Nothing measured in this time" command={snippet("curl", { model: "lorikeet-demo", origin: location.origin })}>
        Every answered request is measured. Send one to see it here; objectives can be set before that.
      </Empty>
    </Card>
  );
}

function Metric({ title, slo, metric }: { title: string; slo: SloReport; metric: Attainment }) {
  const { budget, percentiles: p } = metric;
  const missed = metric.attainment !== null && metric.attainment < slo.target;
  return (
    <Card>
      <CardHeader
        title={title}
        note={metric.objective_ms === null ? "No objective set" : `Objective: ${milliseconds(metric.objective_ms)}`}
        actions={<Freshness at={slo.as_of} />}
      />
      <dl className="grid gap-px bg-line sm:grid-cols-2 xl:grid-cols-4">
        <Figure label="Attainment" value={metric.attainment === null ? "–" : share(metric.attainment)} bad={missed} note={met(metric)} />
        <Figure
          label="Error budget left"
          value={budget?.left == null ? "–" : budget.left < 0 ? "overdrawn" : share(budget.left)}
          bad={budget?.left != null && budget.left <= 0}
          note={budget ? `${number(budget.missed)} missed of ${number(Math.floor(budget.allowed))} allowed` : "needs an objective"}
        />
        <Figure label="Median" value={time(p.p50_ms)} note="half of the requests are at most this" />
        <Figure label="P99" value={time(p.p99_ms)} note={p.p95_ms === null ? "" : `P95 ${time(p.p95_ms)}`} />
      </dl>
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

/** A square for each day: met, missed, or nothing measured. The figure is in its label, which hover and readers get. */
function Days({ metric, target, title }: { metric: Attainment; target: number; title: string }) {
  return (
    <div className="border-t px-4 py-3.5">
      <ul aria-label={`${title} by day`} className="flex gap-0.5 sm:gap-1">
        {metric.by_day.map((row) => (
          <li key={row.date} title={label(row)} className={cn("h-8 min-w-0 flex-1 rounded-[3px]", tone(row.attainment, target))}>
            <span className="sr-only">{label(row)}</span>
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

const label = (row: Attainment["by_day"][number]) =>
  `${day(row.date)}: ${row.attainment === null ? "nothing measured" : `${share(row.attainment)} of ${number(row.measured)} requests`}`;

const tone = (attainment: number | null, target: number) =>
  attainment === null ? "bg-fill-2" : attainment >= target ? "bg-series-1" : "bg-danger";

const time = (value: number | null) => (value === null ? "–" : milliseconds(value));

const met = ({ met, measured }: Attainment) => (met === null ? "needs an objective" : `${number(met)} of ${number(measured)} answered requests`);

/** Cut, never rounded up: 99.99 % is not 100 %. */
export function share(value: number): string {
  return `${(Math.floor(value * 10_000 + 1e-6) / 100).toFixed(2).replace(/\.?0+$/, "")}%`;
}
