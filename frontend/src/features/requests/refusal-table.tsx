import type { Refusal } from "@/api/types";
import { Badge } from "@/components/badge";
import { Table, Td, Tr } from "@/components/table";
import { RelativeTime } from "@/components/relative-time";
import { number } from "@/lib/format";

const LIMITS: Record<string, string> = {
  requests_per_minute: "requests per minute",
  tokens_per_minute: "tokens per minute",
  tokens_per_day: "tokens per day",
  tokens_per_month: "tokens per month",
  concurrency: "concurrent choices",
};

/** Returns the limit or the parameter that caused the refusal. */
function about({ limit, param }: Refusal): string {
  return limit ? (LIMITS[limit] ?? limit) : param;
}

/** A table with one row for each kind of refusal in a minute. */
export function RefusalTable({ rows }: { rows: Refusal[] }) {
  return (
    <Table
      label="Refused requests"
      columns={[
        ["Count", "text-right"],
        "Reason",
        "Limit or parameter",
        "Model",
        ["Caller", "hidden sm:table-cell"],
        ["Last", "text-right"],
      ]}
    >
      {rows.map((row) => (
        <Tr key={row.id}>
          <Td className="tnum w-20 text-right font-medium">{number(row.count)}</Td>
          <Td>
            <span className="inline-flex items-center gap-2">
              <Badge tone={row.status >= 500 ? "danger" : row.status === 429 ? "amber" : "neutral"}>{row.status}</Badge>
              <span className="font-mono text-xs">{row.code}</span>
            </span>
          </Td>
          <Td className="max-w-56 truncate">{about(row) || <span className="text-ink-3">–</span>}</Td>
          <Td className="max-w-48 truncate">{row.model || <span className="text-ink-3">none named</span>}</Td>
          <Td className="hidden max-w-40 truncate sm:table-cell">{row.key ?? "the console"}</Td>
          <Td className="text-right text-ink-3">
            <RelativeTime at={row.last_at} />
          </Td>
        </Tr>
      ))}
    </Table>
  );
}
