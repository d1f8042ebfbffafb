import { useQuery } from "@tanstack/react-query";
import { ChartNoAxesColumn } from "lucide-react";
import { lazy, Suspense, useState } from "react";
import { asApiError } from "@/api/errors";
import type { UsageReport } from "@/api/types";
import { Page } from "@/app/page";
import { SplitBar } from "@/components/bars";
import { Card, CardHeader, Stat, Stats } from "@/components/card";
import { Empty, ErrorNotice, Skeleton } from "@/components/notices";
import { Segmented } from "@/components/segmented";
import { Table, Td, Th, Tr } from "@/components/table";
import { useTenant } from "@/features/session/queries";
import { number, percent, short } from "@/lib/format";
import { snippet } from "@/lib/snippets";
import { usageQuery } from "./queries";

const DayChart = lazy(async () => ({ default: (await import("./day-chart")).DayChart }));

const RANGES = [
  { value: "7", label: "7 days" },
  { value: "30", label: "30 days" },
  { value: "90", label: "90 days" },
] as const;

export function UsagePage() {
  const [range, setRange] = useState<"7" | "30" | "90">("30");
  const { data, error, refetch } = useQuery(usageQuery(useTenant(), Number(range)));
  return (
    <Page
      title="Usage"
      note="Tokens as the engine counted them, by day (UTC) and by adapter."
      actions={<Segmented label="Range" value={range} options={RANGES} onChange={setRange} />}
    >
      {error && <ErrorNotice error={asApiError(error)} onRetry={() => void refetch()} />}
      {!error && !data && <Skeleton className="h-96 w-full" />}
      {data && (data.totals.requests === 0 ? <NoUsage /> : <Report report={data} />)}
    </Page>
  );
}

function NoUsage() {
  return (
    <Card>
      <Empty icon={<ChartNoAxesColumn />} title="Nothing used in this time" command={snippet("curl", { model: "lorikeet-demo", origin: location.origin })}>
        Tokens are counted when a request ends. Send one to see it here.
      </Empty>
    </Card>
  );
}

function Report({ report }: { report: UsageReport }) {
  const { totals, by_day: days } = report;
  const total = totals.prompt_tokens + totals.completion_tokens;
  return (
    <div className="grid gap-5">
      <Stats>
        <Stat label="Requests" value={short(totals.requests)} />
        <Stat label="Tokens" value={short(total)} />
        <Stat label="Prompt tokens" value={short(totals.prompt_tokens)} note={percent(totals.prompt_tokens, total)} />
        <Stat label="Completion tokens" value={short(totals.completion_tokens)} note={percent(totals.completion_tokens, total)} />
      </Stats>
      <Card>
        <CardHeader title="By day" />
        <div className="p-4">
          <Suspense fallback={<Skeleton className="h-60 w-full" />}>
            <DayChart days={days} />
          </Suspense>
        </div>
      </Card>
      <ByAdapter rows={report.by_adapter} total={total} />
    </div>
  );
}

function ByAdapter({ rows, total }: { rows: UsageReport["by_adapter"]; total: number }) {
  const all = (row: UsageReport["by_adapter"][number]) => row.prompt_tokens + row.completion_tokens;
  return (
    <Card>
      <CardHeader title="By adapter" />
      <Table label="Usage by adapter">
        <thead>
          <tr>
            <Th>Adapter</Th>
            <Th className="text-right">Requests</Th>
            <Th className="text-right">Prompt</Th>
            <Th className="text-right">Completion</Th>
            <Th className="text-right">Total</Th>
            <Th className="w-48">Share</Th>
          </tr>
        </thead>
        <tbody>
          {rows
            .toSorted((a, b) => all(b) - all(a))
            .map((row) => (
              <Tr key={row.adapter ?? ""}>
                <Td className="font-medium">{row.adapter ?? <span className="font-normal text-ink-2">base model</span>}</Td>
                <Td className="tnum text-right">{number(row.requests)}</Td>
                <Td className="tnum text-right">{number(row.prompt_tokens)}</Td>
                <Td className="tnum text-right">{number(row.completion_tokens)}</Td>
                <Td className="tnum text-right font-medium">{number(all(row))}</Td>
                <Td>
                  <span className="flex items-center gap-3">
                    <SplitBar
                      total={total}
                      segments={[{ key: "share", label: "", value: all(row), className: "bg-series-1" }]}
                      className="h-1.5! min-w-20 flex-1"
                    />
                    <span className="tnum w-9 text-right text-xs text-ink-3">{percent(all(row), total)}</span>
                  </span>
                </Td>
              </Tr>
            ))}
        </tbody>
      </Table>
    </Card>
  );
}
