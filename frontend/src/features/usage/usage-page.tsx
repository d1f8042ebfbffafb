import { useQuery } from "@tanstack/react-query";
import { ChartNoAxesColumn, Download } from "lucide-react";
import { lazy, type ReactNode, Suspense, useState } from "react";
import { asApiError } from "@/api/errors";
import type { UsageReport } from "@/api/types";
import { Page } from "@/app/page";
import { Button } from "@/components/button";
import { Card, CardHeader, Stat, Stats } from "@/components/card";
import { Empty, ErrorNotice, Skeleton } from "@/components/notices";
import { SegmentedControl } from "@/components/segmented-control";
import { RelativeTime } from "@/components/relative-time";
import { useTenant } from "@/features/session/queries";
import { deviceTime, money, percent, short } from "@/lib/format";
import { snippet } from "@/lib/snippets";
import { Breakdown } from "./breakdown";
import { ExportsCard } from "./exports-card";
import { LatencyTable } from "./latency";
import { usageQuery } from "./queries";
import { StatementCard } from "./statement-card";

const DayChart = lazy(async () => ({ default: (await import("./day-chart")).DayChart }));

const RANGES = [
  { value: "7", label: "7 days" },
  { value: "30", label: "30 days" },
  { value: "90", label: "90 days" },
] as const;

export function UsagePage() {
  const tenant = useTenant();
  const [range, setRange] = useState<"7" | "30" | "90">("30");
  const { data, error, refetch } = useQuery(usageQuery(tenant, Number(range)));
  return (
    <Page
      title="Usage"
      note="Tokens as the engine counted them, by day (UTC), adapter and key."
      actions={
        <>
          <SegmentedControl label="Range" value={range} options={RANGES} onChange={setRange} />
          <Button asChild>
            <a href={`/api/tenants/${tenant}/usage.csv?days=${range}`} download>
              <Download /> Download CSV
            </a>
          </Button>
        </>
      }
    >
      <div className="grid gap-5">
        {error && <ErrorNotice error={asApiError(error)} onRetry={() => void refetch()} />}
        {!error && !data && <Skeleton className="h-96 w-full" />}
        {data && (data.totals.requests === 0 ? <NoUsage /> : <Report report={data} />)}
        <StatementCard />
        <ExportsCard />
      </div>
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
  const { totals, currency, by_day: days } = report;
  const total = totals.prompt_tokens + totals.completion_tokens;
  return (
    <div className="grid gap-5">
      <Stats>
        <Stat label="Requests" value={short(totals.requests)} />
        <Stat label="Tokens" value={short(total)} note={`${percent(totals.prompt_tokens, total)} prompt, ${percent(totals.completion_tokens, total)} completion`} />
        <Stat label="GPU time" value={deviceTime(totals.device_us)} note="its share of every step, by tokens" />
        <Stat label="Cost" value={money(totals.cost_micros, currency)} note={currency ? "without storage" : "no prices set"} />
      </Stats>
      <Card>
        <CardHeader title="By day" actions={<Freshness at={report.as_of} />} />
        <div className="p-4">
          <Suspense fallback={<Skeleton className="h-60 w-full" />}>
            <DayChart days={days} />
          </Suspense>
        </div>
      </Card>
      <Breakdown
        title="By adapter"
        noun="Adapter"
        totals={totals}
        currency={currency}
        rows={report.by_adapter.map((row) => ({ ...row, id: row.adapter ?? "", label: row.adapter ?? <Quiet>base model</Quiet> }))}
      />
      <Breakdown
        title="By key"
        noun="API key"
        totals={totals}
        currency={currency}
        rows={report.by_key.map((row) => ({ ...row, id: row.prefix ?? "", label: row.key ?? <Quiet>console</Quiet> }))}
      />
      <Card>
        <CardHeader title="Latency" note="Of answered requests" />
        <LatencyTable latency={report.latency} />
      </Card>
    </div>
  );
}

const Quiet = ({ children }: { children: ReactNode }) => <span className="font-normal text-ink-2">{children}</span>;

/** Sums are a few seconds behind; a console that hides that lies when they are not only a few. */
export function Freshness({ at }: { at: string | null }) {
  return (
    <span className="pr-1.5 text-xs text-ink-3">
      as of <RelativeTime at={at} never="never: no worker has summed it up" />
    </span>
  );
}
