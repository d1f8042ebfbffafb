import { getRouteApi } from "@tanstack/react-router";
import { Download } from "lucide-react";
import { Suspense } from "react";
import type { OperatorReport } from "@/api/types";
import { Page } from "@/app/page";
import { useQuery } from "@/app/use-query";
import { BaseModelSelect } from "@/components/base-model-select";
import { Button } from "@/components/button";
import { Card, Stat, Stats } from "@/components/card";
import { ErrorNotice, Skeleton } from "@/components/notices";
import { SegmentedControl } from "@/components/segmented-control";
import { Table, Td, Tr } from "@/components/table";
import { BaseModelUsage, Share } from "@/features/usage/breakdown";
import { LatencyTable } from "@/features/usage/latency";
import { Freshness } from "@/features/usage/usage-page";
import { deviceTime, milliseconds, money, number, percent, plural, short } from "@/lib/format";
import { lazyPart } from "@/lib/lazy-part";
import { BaseModelCard } from "./base-model-card";
import { baseModelsQuery, reportQuery } from "./queries";
import { REPORT_DAYS } from "./search";

const PricesCard = lazyPart(() => import("./prices-card"), "PricesCard");
const DayChart = lazyPart(() => import("@/features/usage/day-chart"), "DayChart");

const RANGES = REPORT_DAYS.map((days) => ({ value: String(days), label: days === 1 ? "Today" : `${days} days` }));

const route = getRouteApi("/t/$tenant/operator");

export function OperatorPage() {
  const { days = 30, base_model } = route.useSearch();
  const navigate = route.useNavigate();
  const { data, error, refetch } = useQuery(reportQuery(days, base_model));
  const bases = useQuery(baseModelsQuery).data ?? [];
  const query = new URLSearchParams({ days: String(days), ...(base_model ? { base_model } : {}) });
  return (
    <Page
      title="Platform usage"
      note="Usage, cost, latency and GPU time of all tenants. Days are in UTC."
      actions={
        <>
          <BaseModelSelect
            value={base_model}
            names={[...new Set(bases.filter(({ state }) => state !== "waiting").map(({ name }) => name))]}
            onChange={(chosen) =>
              void navigate({ search: (now) => ({ ...now, base_model: chosen }), resetScroll: false })
            }
            className="w-48!"
          />
          <SegmentedControl
            label="Range"
            value={String(days)}
            options={RANGES}
            onChange={(chosen) =>
              void navigate({
                search: (now) => ({ ...now, days: REPORT_DAYS.find((one) => String(one) === chosen) }),
                resetScroll: false,
              })
            }
          />
          <Button asChild>
            <a href={`/api/operator/usage.csv?${query.toString()}`} download>
              <Download /> Download CSV
            </a>
          </Button>
        </>
      }
    >
      <div className="grid gap-5">
        <BaseModelCard />
        <ErrorNotice error={error} onRetry={refetch} />
        {!error && !data && <Skeleton className="h-96 w-full" />}
        {data && <Report report={data} base={base_model} />}
        <Suspense fallback={<Skeleton className="h-48 w-full" />}>
          <PricesCard />
        </Suspense>
      </div>
    </Page>
  );
}

function Report({ report, base }: { report: OperatorReport; base: string | undefined }) {
  const { totals, outcomes, currency } = report;
  const tokens = totals.prompt_tokens + totals.completion_tokens;
  const bad = outcomes.failed + outcomes.refused;
  const finished = Object.values(outcomes).reduce((sum, count) => sum + count, 0);
  return (
    <>
      <Stats>
        <Stat
          label="Requests"
          value={short(totals.requests)}
          note={`${percent(bad, finished)} failed or refused${base ? " by an engine" : ""}`}
        />
        <Stat label="Tokens" value={short(tokens)} note={`${short(totals.completion_tokens)} generated`} />
        <Stat label="GPU time" value={deviceTime(totals.device_us)} note={plural(report.tenants, "tenant")} />
        <Stat
          label="Revenue"
          value={money(totals.cost_micros, currency)}
          note={currency ? "tokens, without storage" : "no prices set"}
        />
      </Stats>
      <Card title="By day" actions={<Freshness at={report.as_of} />}>
        <div className="p-4">
          <Suspense fallback={<Skeleton className="h-60 w-full" />}>
            <DayChart days={report.by_day} />
          </Suspense>
        </div>
      </Card>
      <BaseModelUsage
        rows={report.by_base_model.map((row) => ({ ...row, name: row.base_model }))}
        totals={totals}
        currency={currency}
      />
      <Tenants report={report} />
      <div className="grid gap-5 lg:grid-cols-2">
        <TopAdapters report={report} />
        <Card title="Latency" note="All tenants together">
          <LatencyTable latency={report.latency} />
        </Card>
      </div>
    </>
  );
}

const wait = (value: number | null) => (value === null ? "–" : milliseconds(value));

function Tenants({ report }: { report: OperatorReport }) {
  return (
    <Card
      title="Tenants"
      note={
        report.tenants > report.by_tenant.length
          ? `The ${report.by_tenant.length} tenants with the most GPU time. The CSV file has all of them.`
          : "By GPU time"
      }
    >
      {report.by_tenant.length === 0 && (
        <p className="px-4 py-8 text-center text-sm text-ink-3">No usage in this time range.</p>
      )}
      {report.by_tenant.length > 0 && (
        <Table
          label="Tenants by GPU time"
          columns={[
            "Tenant",
            ["Requests", "text-right"],
            ["Failed", "hidden text-right lg:table-cell"],
            ["Refused", "hidden text-right lg:table-cell"],
            ["Tokens", "text-right"],
            ["First token P50", "hidden text-right lg:table-cell"],
            ["P99", "hidden text-right lg:table-cell"],
            ["Cost", "text-right"],
            ["GPU time", "text-right"],
            ["Share", "w-36"],
          ]}
        >
          {report.by_tenant.map((row) => (
            <Tr key={row.tenant}>
              <Td>
                <span className="block max-w-40 truncate font-medium sm:max-w-56" title={row.name} dir="auto">
                  {row.name}
                </span>{" "}
                <span className="block max-w-40 truncate text-xs text-ink-3 sm:max-w-56" title={row.tenant}>
                  {row.tenant}
                </span>
              </Td>
              <Td className="tnum text-right">{number(row.requests)}</Td>
              <Td className="tnum hidden text-right lg:table-cell">{number(row.failed)}</Td>
              <Td className="tnum hidden text-right lg:table-cell">{number(row.refused)}</Td>
              <Td className="tnum text-right">{short(row.prompt_tokens + row.completion_tokens)}</Td>
              <Td className="tnum hidden text-right lg:table-cell">{wait(row.latency.first_token.p50_ms)}</Td>
              <Td className="tnum hidden text-right lg:table-cell">{wait(row.latency.first_token.p99_ms)}</Td>
              <Td className="tnum text-right">{money(row.cost_micros, report.currency)}</Td>
              <Td className="tnum text-right font-medium">{deviceTime(row.device_us)}</Td>
              <Td>
                <Share part={row.device_us} total={report.totals.device_us} />
              </Td>
            </Tr>
          ))}
        </Table>
      )}
    </Card>
  );
}

function TopAdapters({ report }: { report: OperatorReport }) {
  return (
    <Card title="Adapters with the most GPU time">
      {report.top_adapters.length === 0 && (
        <p className="px-4 py-8 text-center text-sm text-ink-3">No adapters were used.</p>
      )}
      {report.top_adapters.length > 0 && (
        <Table
          label="Adapters by GPU time"
          columns={["Adapter", "Tenant", ["Requests", "text-right"], ["GPU time", "text-right"], ["Share", "w-32"]]}
        >
          {report.top_adapters.slice(0, 10).map((row) => (
            <Tr key={`${row.tenant} ${row.adapter ?? ""}`}>
              <Td className="font-medium">
                {row.adapter ?? <span className="font-normal text-ink-2">base model</span>}
              </Td>
              <Td>{row.tenant}</Td>
              <Td className="tnum text-right">{number(row.requests)}</Td>
              <Td className="tnum text-right">{deviceTime(row.device_us)}</Td>
              <Td>
                <Share part={row.device_us} total={report.totals.device_us} />
              </Td>
            </Tr>
          ))}
        </Table>
      )}
    </Card>
  );
}
