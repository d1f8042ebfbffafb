import { ArchiveRestore, Trash2 } from "lucide-react";
import { useState } from "react";
import type { ArchivedAdapter } from "@/api/types";
import { useQuery } from "@/app/use-query";
import { Progress } from "@/components/bars";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { Confirm } from "@/components/dialog";
import { type Option, Select } from "@/components/field";
import { ErrorNotice } from "@/components/notices";
import { Pager } from "@/components/pager";
import { SearchInput } from "@/components/search-input";
import { RelativeTime } from "@/components/relative-time";
import { toast } from "@/components/toast";
import { useCan, useTenant } from "@/features/session/queries";
import { bytes, day, plural } from "@/lib/format";
import { ARCHIVED_PAGE, archivedQuery, storageQuery, useDeleteAdapter, useRestoreAdapter } from "./queries";
import { ARCHIVED_SORTS, type AdaptersSearch } from "./search";

const MAX_ROWS = 8;

/** The storage that the adapters take, the largest first. */
export function Storage() {
  const { data, error, refetch } = useQuery(storageQuery(useTenant()));
  if (error) return <ErrorNotice error={error} onRetry={refetch} />;
  if (!data || (data.bytes === 0 && data.archived_bytes === 0)) return null;
  const { bytes: used, limit_bytes: limit, archived_bytes: archived } = data;
  const largest = data.adapters[0]?.bytes ?? 0;
  return (
    <Card
      aria-label="Storage"
      title={`Storage: ${bytes(used)}${limit === null ? "" : ` of ${bytes(limit)}`}`}
      note={`Content shared by versions counts once.${archived > 0 ? ` ${bytes(archived)} of archived content do not count.` : ""}`}
    >
      {limit !== null && (
        <Progress
          label="Storage used of the limit"
          value={used}
          max={limit}
          tone={used > 0.9 * limit ? "danger" : "accent"}
          className="rounded-none!"
        />
      )}
      <ul className="grid gap-2 p-4">
        {data.adapters.slice(0, MAX_ROWS).map((adapter) => (
          <li
            key={adapter.name}
            className="grid grid-cols-[minmax(0,1fr)_auto] items-center gap-x-3 gap-y-1 text-sm sm:grid-cols-[minmax(0,12rem)_minmax(0,1fr)_auto]"
          >
            <span className="truncate">{adapter.name}</span>
            <span
              className="h-1.5 overflow-hidden rounded-full bg-fill-2 max-sm:order-last max-sm:col-span-2"
              aria-hidden
            >
              <span
                className="block h-full rounded-full bg-series-1"
                style={{ width: `${(100 * adapter.bytes) / largest}%` }}
              />
            </span>
            <span className="tnum text-xs text-ink-3">
              {bytes(adapter.bytes)} · {plural(adapter.versions, "version")}
            </span>
          </li>
        ))}
      </ul>
      {data.adapter_count > MAX_ROWS && (
        <p className="border-t px-4 py-2.5 text-xs text-ink-3">
          and {plural(data.adapter_count - MAX_ROWS, "more adapter")}
        </p>
      )}
    </Card>
  );
}

const ORDERS: Record<(typeof ARCHIVED_SORTS)[number], string> = {
  "-archived_at": "Recently archived first",
  archived_at: "Oldest archived first",
  name: "By name",
  "-name": "By name, Z to A",
};

interface ArchivedProps {
  search: AdaptersSearch;
  show: (change: AdaptersSearch) => void;
}

/** The archived adapters that can be restored. It is hidden if there are none. */
export function Archived({ search, show }: ArchivedProps) {
  const { data, error, refetch } = useQuery(archivedQuery(useTenant(), search));
  if (error) return <ErrorNotice error={error} onRetry={refetch} />;
  if (!data || (data.total === 0 && !search.archived)) return null;
  const find = (change: AdaptersSearch) => show({ archived_page: undefined, ...change });
  return (
    <Card
      aria-label="Archived adapters"
      title="Archived"
      note="You can restore an adapter with its versions and aliases until the date shown; after that it is deleted."
    >
      {(data.total > ARCHIVED_PAGE || search.archived) && (
        <div
          role="search"
          aria-label="Archived adapters"
          className="grid gap-2 border-b px-4 py-3 sm:grid-cols-[minmax(0,1fr)_14rem]"
        >
          <SearchInput
            label="Search by name or description"
            value={search.archived}
            onChange={(archived) => find({ archived })}
          />
          <Select
            aria-label="Sort order"
            value={search.archived_sort ?? "-archived_at"}
            onChange={({ target }) =>
              find({ archived_sort: ARCHIVED_SORTS.find((one) => one === target.value && one !== "-archived_at") })
            }
            options={ARCHIVED_SORTS.map((sort): Option => [sort, ORDERS[sort]])}
          />
        </div>
      )}
      {data.total === 0 && (
        <p className="px-4 py-6 text-center text-sm text-ink-3">No archived adapter matches this search.</p>
      )}
      <ul className="divide-y">
        {data.rows.map((adapter) => (
          <ArchivedRow key={adapter.id} adapter={adapter} />
        ))}
      </ul>
      <Pager
        label="Pages of archived adapters"
        page={search.archived_page}
        size={ARCHIVED_PAGE}
        total={data.total}
        onPage={(archived_page) => show({ archived_page })}
      />
    </Card>
  );
}

function ArchivedRow({ adapter }: { adapter: ArchivedAdapter }) {
  const may = useCan("adapters.write");
  return (
    <li className="flex flex-wrap items-center gap-x-3 gap-y-2 px-4 py-2.5 text-sm">
      <span className="font-medium">{adapter.name}</span>
      <span className="text-xs text-ink-3">
        {plural(adapter.versions_count, "version")} · archived <RelativeTime at={adapter.archived_at} /> · kept until{" "}
        {day(adapter.kept_until)}
      </span>
      {may && <ArchivedActions adapter={adapter} />}
    </li>
  );
}

function ArchivedActions({ adapter }: { adapter: ArchivedAdapter }) {
  const tenant = useTenant();
  const [confirming, setConfirming] = useState(false);
  const restore = useRestoreAdapter(tenant);
  const remove = useDeleteAdapter(tenant);
  return (
    <span className="ml-auto flex items-center gap-2">
      <Button
        size="sm"
        busy={restore.isPending}
        aria-label={`Restore ${adapter.name}`}
        onClick={() =>
          restore.mutate(adapter.id, { onSuccess: () => toast.good(`Restored ${adapter.name}`), onError: toast.bad })
        }
      >
        <ArchiveRestore /> Restore
      </Button>
      <Button
        size="icon"
        variant="ghost"
        aria-label={`Delete ${adapter.name}`}
        title="Delete"
        onClick={() => setConfirming(true)}
      >
        <Trash2 />
      </Button>
      {confirming && (
        <Confirm
          onClose={() => setConfirming(false)}
          title={`Delete ${adapter.name} for good?`}
          description="All its versions are deleted. Its usage stays in the ledger. This cannot be undone."
          action="Delete adapter"
          write={remove}
          onConfirm={() => remove.mutate(adapter.id, { onSuccess: () => toast.good(`Deleted ${adapter.name}`) })}
        />
      )}
    </span>
  );
}
