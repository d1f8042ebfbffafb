import { queryOptions } from "@tanstack/react-query";
import { request } from "@/api/client";
import type { HostPages, PageOwner } from "@/api/types";
import { useQuery } from "@/app/use-query";
import { StackedBar } from "@/components/bars";
import { Button } from "@/components/button";
import { ErrorNotice, SkeletonRows } from "@/components/notices";
import { Table, Td, Tr } from "@/components/table";
import { useTenant } from "@/features/session/queries";
import { bytes, milliseconds, number, percent } from "@/lib/format";

const pagesQuery = (tenant: string | null, host: string) =>
  queryOptions({
    queryKey: [...(tenant === null ? ["operator"] : ["t", tenant]), "host-pages", host],
    queryFn: () =>
      tenant === null
        ? request("GET /api/operator/hosts/{host_name}/pages", { host_name: host })
        : request("GET /api/tenants/{tenant}/hosts/{host_name}/pages", { tenant, host_name: host }),
    refetchInterval: 5000,
  });

const KINDS: Record<PageOwner["kind"], { label: string; color: string }> = {
  kv: { label: "KV", color: "bg-series-1" },
  state: { label: "Recurrent state", color: "bg-series-1 hatch" },
  cached_prefix: { label: "Cached prefix", color: "bg-series-2" },
  adapter: { label: "Adapter", color: "bg-series-3" },
  reserved: { label: "Reserved", color: "bg-series-4 hatch" },
  others: { label: "Other tenants", color: "bg-ink-3" },
  free: { label: "Free", color: "bg-fill-2" },
};

interface SectionProps {
  host: string;
  /** Shows the pages of all tenants, for operators. */
  allTenants?: boolean;
  open: boolean;
  onOpen: (open: boolean) => void;
}

/** The owners of a host's pages. They are read only while open, because the engine computes them for each request. */
export function PageOwnersSection({ host, allTenants = false, open, onOpen }: SectionProps) {
  return (
    <section aria-label={`Pages of ${host}`} className="border-t px-4 py-3">
      <div className="flex items-center justify-between gap-3">
        <h3 className="text-xs font-medium text-ink-3">{allTenants ? host : "Pages by owner"}</h3>
        <Button size="sm" aria-expanded={open} onClick={() => onOpen(!open)}>
          {open ? "Hide owners" : "Show owners"}
        </Button>
      </div>
      {open && <Owners host={host} allTenants={allTenants} />}
    </section>
  );
}

/** Number of pages of each owner, in descending order. The answer lists runs as pairs of an owner's index and a length. */
export function pagesByOwner({ owners, runs }: HostPages): { owner: PageOwner; pages: number }[] {
  const rows = owners.map((owner) => ({ owner, pages: 0 }));
  for (let at = 0; at < runs.length; at += 2) rows[runs[at]!]!.pages += runs[at + 1]!;
  return rows.filter(({ pages }) => pages > 0).toSorted((a, b) => b.pages - a.pages);
}

const MAX_ROWS = 100;

function Owners({ host, allTenants }: { host: string; allTenants: boolean }) {
  const tenant = useTenant();
  const { data, error, refetch } = useQuery(pagesQuery(allTenants ? null : tenant, host));
  if (error) return <ErrorNotice error={error} onRetry={refetch} className="mt-3" />;
  if (!data) return <SkeletonRows rows={3} />;
  const rows = pagesByOwner(data);
  const segments = Object.entries(KINDS).map(([kind, { label, color }]) => ({
    key: kind,
    label,
    value: rows.reduce((sum, { owner, pages }) => sum + (owner.kind === kind ? pages : 0), 0),
    className: color,
  }));
  return (
    <div className="mt-3 max-h-80 overflow-y-auto">
      <StackedBar segments={segments} total={data.total} />
      <Table
        label="Pages by owner"
        columns={["Contents", "Owner", ["Pages", "text-right"], ["Size", "text-right"], ["Share", "text-right"], "Age"]}
      >
        {rows.slice(0, MAX_ROWS).map(({ owner, pages }, index) => (
          <Tr key={index}>
            <Td className="font-medium">
              <span className={`mr-2 inline-block size-2 rounded-[3px] ${KINDS[owner.kind].color}`} aria-hidden />
              {KINDS[owner.kind].label}
              {owner.pinned && ", pinned"}
            </Td>
            <Td className="max-w-64 truncate text-ink-2">
              {[owner.tenant, owner.adapters.join(", ")].filter(Boolean).join(" · ") || "–"}
            </Td>
            <Td className="tnum text-right">{number(pages)}</Td>
            <Td className="tnum text-right">{bytes(pages * data.page_bytes)}</Td>
            <Td className="tnum text-right">{percent(pages, data.total)}</Td>
            <Td className="tnum text-ink-3">{age(owner)}</Td>
          </Tr>
        ))}
      </Table>
      {rows.length > MAX_ROWS && (
        <p className="px-4 py-2 text-xs text-ink-3">
          Shows the {MAX_ROWS} largest of {number(rows.length)} owners.
        </p>
      )}
    </div>
  );
}

function age({ age_s, kind }: PageOwner): string {
  if (age_s === null) return "–";
  return `${kind === "adapter" ? "idle for " : ""}${milliseconds(age_s * 1000)}`;
}
