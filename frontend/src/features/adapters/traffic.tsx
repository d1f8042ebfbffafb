import { Suspense } from "react";
import type { SeriesPart, SeriesReport } from "@/api/types";
import { useQuery } from "@/app/use-query";
import { Card } from "@/components/card";
import { ErrorNotice, Skeleton } from "@/components/notices";
import { Table, Td, Tr } from "@/components/table";
import { TimeRangeControl, useTimeRange } from "@/components/time-range";
import { useTenant } from "@/features/session/queries";
import { seriesQuery } from "@/features/usage/series";
import { deviceTime, milliseconds, money, number, percent } from "@/lib/format";
import { lazyPart } from "@/lib/lazy-part";

const SeriesCharts = lazyPart(() => import("@/features/usage/series-charts"), "SeriesCharts");

/** An adapter's requests over time, and its versions side by side. */
export function Traffic({ name }: { name: string }) {
  const range = useTimeRange("1d");
  const { data, error, refetch } = useQuery(seriesQuery(useTenant(), range.query, { adapter: name }));
  return (
    <Card
      aria-label="Traffic"
      title="Traffic"
      note="All versions. Drag across a chart to zoom."
      actions={<TimeRangeControl range={range} />}
    >
      <ErrorNotice error={error} onRetry={refetch} className="m-4" />
      {!error && !data && <Skeleton className="m-4 h-80" />}
      {data && data.totals.requests === 0 && (
        <p className="px-4 py-6 text-sm text-ink-3">No requests to this adapter in this time range.</p>
      )}
      {data && data.totals.requests > 0 && (
        <>
          <Suspense fallback={<Skeleton className="m-4 h-80" />}>
            <SeriesCharts report={data} onZoom={range.zoom} onZoomOut={range.zoomOut} />
          </Suspense>
          <VersionsTable report={data} />
        </>
      )}
    </Card>
  );
}

const time = (value: number | null) => (value === null ? "–" : milliseconds(value));

function VersionsTable({ report }: { report: SeriesReport }) {
  const { by_version: versions, totals, currency } = report;
  return (
    <div className="border-t">
      <Table
        label="Versions side by side"
        columns={[
          "Version",
          ["Requests", "text-right"],
          ["Failed", "text-right"],
          ["First token", "text-right"],
          ["P95", "text-right"],
          ["Inter-token P95", "text-right"],
          ["Tokens", "text-right"],
          totals.drafted_tokens > 0 && ["Accepted drafts", "text-right"],
          ["GPU time", "text-right"],
          currency && ["Cost", "text-right"],
        ]}
      >
        {versions.map((row) => (
          <VersionRow key={row.version} row={row} whole={totals} currency={currency} />
        ))}
      </Table>
    </div>
  );
}

interface VersionRowProps {
  row: SeriesPart;
  whole: SeriesReport["totals"];
  currency: string | null;
}

function VersionRow({ row, whole, currency }: VersionRowProps) {
  const failed = row.outcomes.failed + row.outcomes.refused;
  const { first_token: first, inter_token: inter } = row.latency;
  return (
    <Tr>
      <Td className="tnum font-medium">v{row.version}</Td>
      <Td className="tnum text-right">
        {number(row.requests)} <span className="text-xs text-ink-3">{percent(row.requests, whole.requests)}</span>
      </Td>
      <Td className={failed ? "tnum text-right text-danger-text" : "tnum text-right"}>
        {failed ? `${number(failed)} (${percent(failed, row.requests)})` : "0"}
      </Td>
      <Td className="tnum text-right">{time(first.p50_ms)}</Td>
      <Td className="tnum text-right">{time(first.p95_ms)}</Td>
      <Td className="tnum text-right">{time(inter.p95_ms)}</Td>
      <Td className="tnum text-right">{number(row.prompt_tokens + row.completion_tokens)}</Td>
      {whole.drafted_tokens > 0 && (
        <Td className="tnum text-right">
          {row.drafted_tokens > 0 ? percent(row.accepted_tokens, row.drafted_tokens) : "–"}
        </Td>
      )}
      <Td className="tnum text-right">{deviceTime(row.device_us)}</Td>
      {currency && <Td className="tnum text-right font-medium">{money(row.cost_micros, currency)}</Td>}
    </Tr>
  );
}
