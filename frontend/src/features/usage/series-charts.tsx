import type { ReactNode } from "react";
import type { RefusalSeries, SeriesPoint, SeriesReport } from "@/api/types";
import { type ChartSeries, TimeChart } from "@/components/time-chart";
import { milliseconds, money, short } from "@/lib/format";
import { cn } from "@/lib/cn";

interface ChartsProps {
  report: SeriesReport;
  onZoom: (since: number, until: number) => void;
  onZoomOut: () => void;
  /** Milliseconds of an objective, drawn as a line across the latencies. */
  objectives?: { first_token?: number | null; inter_token?: number | null };
  show?: ChartName[];
  /** Refused requests of the same time range, shown beside the others. */
  refused?: RefusalSeries;
  /** Gives each chart the width of the page. */
  wide?: boolean;
}

type ChartName = "requests" | "tokens" | "first_token" | "inter_token" | "cost";
const ALL: ChartName[] = ["requests", "tokens", "first_token", "inter_token"];

export const latencyMs = (value: number) => (value < 10 ? `${value.toFixed(1)} ms` : milliseconds(value));

/** The charts of a report. Zooming in one zooms all, because the page has one time range. */
export function SeriesCharts({ report, onZoom, onZoomOut, objectives, show = ALL, refused, wide }: ChartsProps) {
  const { points, step_s: stepS, currency } = report;
  const refusedAt = refused && totalByStep(refused);
  const frame = { at: points.map(({ at }) => Date.parse(at)), stepS, onZoom, onZoomOut };
  const of = (
    key: string,
    label: string,
    color: ChartSeries["color"],
    value: (point: SeriesPoint) => number | null,
  ): ChartSeries => ({ key, label, color, values: points.map(value) });
  const percentiles = (metric: "first_token" | "inter_token") => [
    of("p50", "P50", 1, ({ latency }) => latency[metric].p50_ms),
    of("p95", "P95", 2, ({ latency }) => latency[metric].p95_ms),
    of("p99", "P99", 3, ({ latency }) => latency[metric].p99_ms),
  ];
  const objective = (value: number | null | undefined) =>
    value == null ? undefined : { value, label: `objective ${milliseconds(value)}` };
  const charts: Record<ChartName, () => ReactNode> = {
    requests: () => (
      <TimeChart
        {...frame}
        title="Requests"
        kind="bars"
        format={short}
        series={[
          of("answered", "answered", 1, ({ outcomes }) => outcomes.finished),
          of("aborted", "aborted", 4, ({ outcomes }) => outcomes.aborted),
          of("failed", "failed", "danger", ({ outcomes }) => outcomes.failed + outcomes.refused),
          ...(refusedAt ? [of("refused", "refused", 3, ({ at }) => refusedAt.get(Date.parse(at)) ?? 0)] : []),
        ]}
      />
    ),
    tokens: () => (
      <TimeChart
        {...frame}
        title="Tokens"
        kind="bars"
        format={short}
        series={[
          of("prompt", "prompt", 2, (point) => point.prompt_tokens),
          of("completion", "completion", 1, (point) => point.completion_tokens),
        ]}
      />
    ),
    first_token: () => (
      <TimeChart
        {...frame}
        title="Time to first token"
        kind="lines"
        format={latencyMs}
        series={percentiles("first_token")}
        line={objective(objectives?.first_token)}
      />
    ),
    inter_token: () => (
      <TimeChart
        {...frame}
        title="Inter-token latency"
        kind="lines"
        format={latencyMs}
        series={percentiles("inter_token")}
        line={objective(objectives?.inter_token)}
      />
    ),
    cost: () => (
      <TimeChart
        {...frame}
        title="Cost"
        kind="bars"
        format={(value) => money(value, currency)}
        series={[of("cost", "cost", 2, (point) => point.cost_micros)]}
      />
    ),
  };
  return (
    <div className={cn("grid gap-x-8 gap-y-7 p-4", !wide && "lg:grid-cols-2")}>
      {show.map((name) => (
        <div key={name} className="min-w-0">
          {charts[name]()}
        </div>
      ))}
    </div>
  );
}

/** Returns the number of refused requests by the start of the step. The two reports may differ in their last step. */
function totalByStep({ starts, by_code }: RefusalSeries): Map<number, number> {
  return new Map(
    starts.map((at, index) => [Date.parse(at), by_code.reduce((sum, { by_step }) => sum + (by_step[index] ?? 0), 0)]),
  );
}
