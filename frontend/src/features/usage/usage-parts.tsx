import { getRouteApi } from "@tanstack/react-router";
import { ArrowDown } from "lucide-react";
import type { ReactNode } from "react";
import type { UsageTotals } from "@/api/types";
import { useQuery } from "@/app/use-query";
import { Card } from "@/components/card";
import { ErrorNotice, SkeletonRows } from "@/components/notices";
import { Pager } from "@/components/pager";
import { SearchInput } from "@/components/search-input";
import { Th } from "@/components/table";
import { useTenant } from "@/features/session/queries";
import { number } from "@/lib/format";
import type { RangeQuery } from "@/lib/time-range";
import { Quiet, UsageTable } from "./breakdown";
import type { PartsSearch, PartSort } from "./search";
import { USAGE_PARTS_PAGE, usagePartsQuery } from "./series";

const route = getRouteApi("/t/$tenant/usage");

const KINDS = {
  adapter: { title: "By adapter", noun: "Adapter", nouns: "adapters", nobody: "base model" },
  key: { title: "By key", noun: "API key", nouns: "API keys", nobody: "console" },
} as const;

interface Props {
  by: keyof typeof KINDS;
  range: RangeQuery;
  base_model: string | undefined;
  totals: UsageTotals;
  currency: string | null;
}

/** The usage of every adapter or key, a page at a time, those with the largest figures first. */
export function UsageParts({ by, range, base_model, totals, currency }: Props) {
  const { title, noun, nouns, nobody } = KINDS[by];
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const shown: PartsSearch = search[by] ?? {};
  const show = (change: PartsSearch) =>
    void navigate({
      search: (now) => ({ ...now, [by]: { ...shown, page: undefined, ...change } }),
      replace: true,
      resetScroll: false,
    });
  const sort = shown.sort ?? "requests";
  const { data, error, refetch } = useQuery(usagePartsQuery(useTenant(), range, { by, base_model, ...shown }));
  const sorted = (column: PartSort, label: string, className?: string) => (
    <LargestFirst column={column} sort={sort} onSort={(next) => show({ sort: next })} className={className}>
      {label}
    </LargestFirst>
  );
  return (
    <Card
      title={title}
      note={data && !shown.q ? `${number(data.total)} ${nouns} with requests in this time` : undefined}
      actions={
        data &&
        (data.total > USAGE_PARTS_PAGE || shown.q) && (
          <SearchInput
            landmark={title}
            className="w-60"
            label={`Search ${nouns}`}
            value={shown.q}
            onChange={(q) => show({ q })}
          />
        )
      }
    >
      <ErrorNotice error={error} onRetry={refetch} className="m-4" />
      {!error && !data && <SkeletonRows rows={4} />}
      {data?.total === 0 && <p className="px-4 py-6 text-center text-sm text-ink-3">No matches.</p>}
      {data && data.total > 0 && (
        <UsageTable
          title={title}
          noun={noun}
          totals={totals}
          currency={currency}
          requests={sorted("requests", "Requests", "text-right")}
          gpuTime={sorted("device_us", "GPU time", "text-right")}
          share={sorted("tokens", "Share of tokens", "w-44")}
          rows={data.rows.map((row) => ({
            ...row,
            id: row.prefix ?? row.name ?? "",
            label: row.name ?? <Quiet>{nobody}</Quiet>,
          }))}
        />
      )}
      {data && (
        <Pager
          label={`Pages of ${nouns}`}
          page={shown.page}
          size={USAGE_PARTS_PAGE}
          total={data.total}
          onPage={(page) => show({ page })}
        />
      )}
    </Card>
  );
}

interface LargestFirstProps {
  column: PartSort;
  sort: PartSort;
  onSort: (column: PartSort) => void;
  className?: string;
  children: ReactNode;
}

/** A column header that sorts by its figure, the largest first. */
function LargestFirst({ column, sort, onSort, className, children }: LargestFirstProps) {
  const active = sort === column;
  return (
    <Th aria-sort={active ? "descending" : "none"} className={className}>
      <button
        type="button"
        onClick={() => onSort(column)}
        className="inline-flex items-center gap-1 rounded hover:text-ink"
      >
        {children}
        {active && <ArrowDown className="size-3" aria-hidden />}
      </button>
    </Th>
  );
}
