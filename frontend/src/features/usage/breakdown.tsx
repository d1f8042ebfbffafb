import type { ReactNode } from "react";
import type { UsageTotals } from "@/api/types";
import { StackedBar } from "@/components/bars";
import { Card } from "@/components/card";
import { Table, Td, Tr } from "@/components/table";
import { deviceTime, money, number, percent } from "@/lib/format";

interface BreakdownRow extends UsageTotals {
  id: string;
  label: ReactNode;
}

const tokens = (row: UsageTotals) => row.prompt_tokens + row.completion_tokens;

interface BreakdownProps {
  title: string;
  note?: string;
  noun: string;
  rows: BreakdownRow[];
  totals: UsageTotals;
  currency: string | null;
}

/** A table of usage and cost by adapter, key or model, with the share of all tokens. */
export function Breakdown({ title, note, noun, rows, totals, currency }: BreakdownProps) {
  return (
    <Card title={title} note={note}>
      <Table
        label={`Usage ${title.toLowerCase()}`}
        columns={[
          noun,
          ["Requests", "text-right"],
          ["Prompt", "text-right"],
          ["Completion", "text-right"],
          ["GPU time", "text-right"],
          currency && ["Cost", "text-right"],
          ["Share of tokens", "w-44"],
        ]}
      >
        {rows
          .toSorted((a, b) => tokens(b) - tokens(a))
          .map((row) => (
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
    </Card>
  );
}

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
