import type { UseQueryResult } from "@tanstack/react-query";
import { Suspense } from "react";
import type { RefusalSeries } from "@/api/types";
import { Badge } from "@/components/badge";
import { Card } from "@/components/card";
import { ErrorNotice, Skeleton } from "@/components/notices";
import { Table, Td, Tr } from "@/components/table";
import type { ChartSeries } from "@/components/time-chart";
import type { useTimeRange } from "@/components/time-range";
import { number, percent, plural, short } from "@/lib/format";
import { lazyPart } from "@/lib/lazy-part";

const TimeChart = lazyPart(() => import("@/components/time-chart"), "TimeChart");

const COLORS: ChartSeries["color"][] = [3, 2, 1, 4];

interface RefusalsCardProps {
  query: UseQueryResult<RefusalSeries>;
  range: ReturnType<typeof useTimeRange>;
}

/** Requests that reached no engine, over time and by code. It is hidden if there were none. */
export function RefusalsCard({ query: { data: refused, error, refetch }, range }: RefusalsCardProps) {
  if (error) return <ErrorNotice error={error} onRetry={refetch} />;
  if (!refused || refused.total === 0) return null;
  const { by_code: codes, total, failed } = refused;
  const largest = codes.slice(0, COLORS.length);
  const series: ChartSeries[] = largest.map(({ code, by_step }, index) => ({
    key: code,
    label: code,
    color: COLORS[index] ?? 4,
    values: by_step,
  }));
  const rest = codes.slice(COLORS.length);
  if (rest.length > 0) {
    const values = refused.starts.map((_, step) => rest.reduce((sum, { by_step }) => sum + (by_step[step] ?? 0), 0));
    series.push({ key: "", label: "all other codes", color: "danger", values });
  }
  return (
    <Card
      aria-label="Refused"
      title="Refused requests"
      note={`${plural(total, "request")}${failed > 0 ? `, ${number(failed)} of them because of server errors (5xx)` : ""}. They were refused before an engine ran them: they are free of charge and not included in other figures.`}
    >
      <div className="p-4">
        <Suspense fallback={<Skeleton className="h-44" />}>
          <TimeChart
            title="By code"
            at={refused.starts.map((at) => Date.parse(at))}
            stepS={refused.step_s}
            kind="bars"
            format={short}
            series={series}
            onZoom={range.zoom}
            onZoomOut={range.zoomOut}
          />
        </Suspense>
      </div>
      <div className="border-t">
        <Table
          label="Refused by code"
          columns={["Code", ["Status", "text-right"], ["Requests", "text-right"], ["Share", "text-right"]]}
        >
          {codes.map(({ code, status, count }) => (
            <Tr key={`${status} ${code}`}>
              <Td className="font-mono text-xs">{code}</Td>
              <Td className="text-right">
                {status === 0 ? "–" : <Badge tone={status >= 500 ? "danger" : "neutral"}>{status}</Badge>}
              </Td>
              <Td className="tnum text-right">{number(count)}</Td>
              <Td className="tnum text-right">{percent(count, total)}</Td>
            </Tr>
          ))}
        </Table>
      </div>
    </Card>
  );
}
