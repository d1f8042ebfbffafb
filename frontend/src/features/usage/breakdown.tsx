import type { ReactNode } from "react";
import type { UsageTotals } from "@/api/types";
import { StackedBar } from "@/components/bars";
import { Card } from "@/components/card";
import { type Column, Table, Td, Tr } from "@/components/table";
import { deviceTime, money, number, percent } from "@/lib/format";

interface BreakdownRow extends UsageTotals {
  id: string;
  label: ReactNode;
}

const tokens = (row: UsageTotals) => row.prompt_tokens + row.completion_tokens;

interface TableProps {
  title: string;
  noun: string;
  rows: BreakdownRow[];
  totals: UsageTotals;
  currency: string | null;
  /** Headers of columns that sort the rows. */
  requests?: Column;
  gpuTime?: Column;
  share?: Column;
}

interface BaseModelsProps {
  rows: (UsageTotals & { name?: string | null })[];
  totals: UsageTotals;
  currency: string | null;
}

/** A card with the usage of each base model, those with most tokens first. It is hidden if only one was used. */
export function BaseModelUsage({ rows, ...rest }: BaseModelsProps) {
  if (rows.length < 2) return null;
  const labelled = rows
    .toSorted((a, b) => tokens(b) - tokens(a))
    .map((row) => ({ ...row, id: row.name ?? "", label: row.name ?? <Quiet>not recorded</Quiet> }));
  return (
    <Card title="By base model">
      <UsageTable title="By base model" noun="Base model" rows={labelled} {...rest} />
    </Card>
  );
}

/** A table of usage and cost by adapter, key or model, with the share of all tokens. */
export function UsageTable({ title, noun, rows, totals, currency, ...headers }: TableProps) {
  return (
    <Table
      label={`Usage ${title.toLowerCase()}`}
      columns={[
        noun,
        headers.requests ?? ["Requests", "text-right"],
        ["Prompt", "text-right"],
        ["Completion", "text-right"],
        headers.gpuTime ?? ["GPU time", "text-right"],
        currency && ["Cost", "text-right"],
        headers.share ?? ["Share of tokens", "w-44"],
      ]}
    >
      {rows.map((row) => (
        <Tr key={row.id}>
          <Td className="font-medium">
            <bdi
              className="block max-w-40 truncate sm:max-w-64"
              title={typeof row.label === "string" ? row.label : undefined}
            >
              {row.label}
            </bdi>
          </Td>
          <Td className="tnum text-right">{number(row.requests)}</Td>
          <Td className="tnum text-right">{number(row.prompt_tokens)}</Td>
          <Td className="tnum text-right">{number(row.completion_tokens)}</Td>
          <Td className="tnum text-right">{deviceTime(row.device_us)}</Td>
          {currency && <Td className="tnum text-right font-medium">{money(row.cost_micros, currency)}</Td>}
          <Td>
            <Share part={tokens(row)} total={tokens(totals)} />
          </Td>
        </Tr>
      ))}
    </Table>
  );
}

export const Quiet = ({ children }: { children: ReactNode }) => (
  <span className="font-normal text-ink-2">{children}</span>
);

export function Share({ part, total }: { part: number; total: number }) {
  return (
    <span className="flex items-center gap-3">
      <StackedBar
        total={total}
        segments={[{ key: "share", label: "", value: part, className: "bg-series-1" }]}
        className="h-1.5! min-w-16 flex-1"
      />
      <span className="tnum w-9 text-right text-xs text-ink-3">{percent(part, total)}</span>
    </span>
  );
}
