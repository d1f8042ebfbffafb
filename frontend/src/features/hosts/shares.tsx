import type { Share, TenantShare } from "@/api/types";
import { Badge } from "@/components/badge";
import { Table, Td, Tr } from "@/components/table";
import { number, percent, short } from "@/lib/format";

/** Reasons why a tenant's next request waits, by the engine's code. */
const REASONS: Record<string, string> = {
  adapter_loading: "its adapter is loading",
  no_room: "memory is full until running requests end",
  background: "batches run after all other requests",
  tenant_cap: "the tenant runs its maximum number of requests",
  own_queue: "behind the tenant’s other requests",
  own_quota: "other tenants have received less service for their weight",
  batch_full: "next, when a running request ends",
  queue: "behind earlier requests",
};

const why = ({ waiting, reason }: Share) => (waiting === 0 ? "–" : (REASONS[reason] ?? reason));

interface Row extends Share {
  id: string;
  label: string;
}

interface SharesProps {
  label: string;
  noun: string;
  rows: Row[];
  /** Service per weight beyond that of the least served tenant. */
  ahead?: Record<string, number>;
}

/** The shares of an engine that tenants are owed and receive, and why their requests wait. */
export function Shares({ label, noun, rows, ahead }: SharesProps) {
  return (
    <Table
      label={label}
      columns={[
        noun,
        ["Weight", "text-right"],
        ["Owed", "text-right"],
        ["Received", "text-right"],
        ahead && ["Ahead", "text-right"],
        ["Running", "text-right"],
        ["Waiting", "text-right"],
        "Why it waits",
      ]}
    >
      {rows.map((row) => (
        <Tr key={row.id}>
          <Td className="max-w-56 truncate font-medium" title={row.label}>
            {row.label}
          </Td>
          <Td className="tnum text-right">{Math.round(row.weight * 100) / 100}</Td>
          <Td className="tnum text-right">{percent(row.owed, 1)}</Td>
          <Td className="tnum text-right">
            {/* Who has something waiting and gets clearly less than its weight is what fairness is about. */}
            {row.waiting > 0 && row.received < row.owed * 0.8 ? (
              <Badge tone="amber">{percent(row.received, 1)}</Badge>
            ) : (
              percent(row.received, 1)
            )}
          </Td>
          {ahead && <Td className="tnum text-right">{short(Math.round(ahead[row.id] ?? 0))}</Td>}
          <Td className="tnum text-right">{number(row.running)}</Td>
          <Td className="tnum text-right">{number(row.waiting)}</Td>
          <Td className="text-ink-2">{why(row)}</Td>
        </Tr>
      ))}
    </Table>
  );
}

export const tenantRows = (shares: TenantShare[]): Row[] =>
  shares.map((share) => ({ ...share, id: share.tenant, label: share.name }));
