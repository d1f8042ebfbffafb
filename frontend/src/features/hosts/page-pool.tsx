import type { Pool } from "@/api/types";
import { type Segment, StackedBar } from "@/components/bars";
import { cn } from "@/lib/cn";
import { bytes, number, percent } from "@/lib/format";

function segments(pool: Pool): Segment[] {
  return [
    { key: "kv", label: "KV", value: pool.kv, className: "bg-series-1" },
    ...(pool.state > 0
      ? [{ key: "state", label: "Recurrent state", value: pool.state, className: "bg-series-1 hatch" }]
      : []),
    { key: "cached_prefix", label: "Cached prefix", value: pool.cached_prefix, className: "bg-series-2" },
    { key: "adapter", label: "Adapter", value: pool.adapter, className: "bg-series-3" },
    { key: "reserved", label: "Reserved", value: pool.reserved, className: "bg-series-4 hatch" },
  ];
}

/** The division of the page pool; the empty part of the bar is free. */
export function PoolBar({ pool, className }: { pool: Pool; className?: string }) {
  return <StackedBar segments={segments(pool)} total={pool.total} className={className} />;
}

export function PoolLegend({ pool, pageBytes }: { pool: Pool; pageBytes: number }) {
  const rows = [...segments(pool), { key: "free", label: "Free", value: pool.free, className: "bg-fill-2" }];
  return (
    <dl className="mt-3 grid grid-cols-2 gap-x-6 gap-y-2 sm:grid-cols-5">
      {rows.map((row) => (
        <div key={row.key}>
          <dt className="flex items-center gap-1.5 text-xs text-ink-3">
            <span className={cn("size-2 rounded-[3px] ring-1 ring-ink/10", row.className)} />
            {row.label}
          </dt>
          <dd className="tnum mt-0.5 text-sm font-medium">
            {number(row.value)} <span className="font-normal text-ink-3">pages</span>
          </dd>
          <dd className="tnum text-xs text-ink-3">
            {bytes(row.value * pageBytes)} · {percent(row.value, pool.total)}
          </dd>
        </div>
      ))}
    </dl>
  );
}
