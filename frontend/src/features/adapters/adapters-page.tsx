import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { ArrowDown, ArrowUp, Boxes, Search, Upload } from "lucide-react";
import { type ReactNode, useState } from "react";
import { asApiError } from "@/api/errors";
import type { AdapterSummary } from "@/api/types";
import { Page } from "@/app/page";
import { Badge } from "@/components/badge";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { Input } from "@/components/field";
import { Empty, ErrorNotice, SkeletonRows } from "@/components/notices";
import { Pager } from "@/components/pager";
import { SegmentedControl } from "@/components/segmented-control";
import { Table, Td, Th, Tr } from "@/components/table";
import { TargetModules } from "@/components/target-modules";
import { RelativeTime } from "@/components/relative-time";
import { useCan, useTenant } from "@/features/session/queries";
import { cn } from "@/lib/cn";
import { bytes, plural } from "@/lib/format";
import { adaptersQuery } from "./queries";
import { AdapterState } from "./version-status";
import { Archived, Storage } from "./storage";

export function AdaptersPage() {
  const tenant = useTenant();
  const { data, error, refetch } = useQuery(adaptersQuery(tenant));
  const upload = useCan("adapters.write") && (
    <Button variant="primary" asChild>
      <Link to="/t/$tenant/upload" params={{ tenant }}>
        <Upload /> Upload adapter
      </Link>
    </Button>
  );
  return (
    <Page title="Adapters" note="Each name can be called as a model. Versions never change; the live one can." actions={data?.length ? upload : null}>
      {error && <ErrorNotice error={asApiError(error)} onRetry={() => void refetch()} />}
      {!error && !data && (
        <Card>
          <SkeletonRows rows={6} />
        </Card>
      )}
      {data?.length === 0 && <NoAdapters upload={upload} tenant={tenant} />}
      {data && data.length > 0 && <List adapters={data} />}
      <div className="mt-5 grid items-start gap-5 empty:hidden">
        <Storage />
        <Archived />
      </div>
    </Page>
  );
}

function NoAdapters({ upload, tenant }: { upload: ReactNode; tenant: string }) {
  const command = `curl ${location.origin}/api/tenants/${tenant}/uploads \\
  -H "Authorization: Bearer $LORIKEET_API_KEY" \\
  -F name=my-adapter \\
  -F files=@adapter_config.json \\
  -F files=@adapter_model.safetensors`;
  return (
    <Card>
      <Empty icon={<Boxes />} title="No adapters yet" action={upload} command={command}>
        Upload the folder that PEFT wrote. It is checked against the base model in seconds and can be called as soon as it is staged.
      </Empty>
    </Card>
  );
}

type Filter = "all" | "ready" | "moving" | "failed";

const FILTERS: Record<Filter, (adapter: AdapterSummary) => boolean> = {
  all: () => true,
  ready: ({ status }) => status === "ready",
  moving: ({ status }) => status === "staging" || status === "validated",
  failed: ({ status }) => status === "failed",
};
const FILTER_LABELS: [Filter, string][] = [
  ["all", "All"],
  ["ready", "Ready"],
  ["moving", "Staging"],
  ["failed", "Failed"],
];

type Column = "name" | "rank" | "bytes" | "created_at";

interface Sorting {
  by: Column;
  down: boolean;
}

const compare = ({ by, down }: Sorting) => (a: AdapterSummary, b: AdapterSummary) => {
  const order = by === "rank" || by === "bytes" ? (a[by] ?? 0) - (b[by] ?? 0) : a[by].localeCompare(b[by]);
  return down ? -order : order;
};

const matches = (adapter: AdapterSummary, needle: string) => `${adapter.name} ${adapter.description}`.toLowerCase().includes(needle);

/** Shown at a time: thousands of rows would make every key press slow. */
const ROWS = 100;

function List({ adapters }: { adapters: AdapterSummary[] }) {
  const [needle, setNeedle] = useState("");
  const [filter, setFilter] = useState<Filter>("all");
  const [sorting, setSorting] = useState<Sorting>({ by: "name", down: false });
  const [page, setPage] = useState(0);
  const shown = adapters
    .filter((adapter) => FILTERS[filter](adapter) && matches(adapter, needle.trim().toLowerCase()))
    .toSorted(compare(sorting));
  const first = page * ROWS < shown.length ? page * ROWS : 0;
  return (
    <>
      <div className="mb-3 flex flex-wrap items-center gap-3">
        <div className="relative w-full sm:w-72">
          <Search className="pointer-events-none absolute top-2.5 left-3 size-4 text-ink-3" aria-hidden />
          <Input
            type="search"
            aria-label="Search adapters"
            placeholder="Search by name or description"
            value={needle}
            onChange={(event) => setNeedle(event.target.value)}
            className="pl-9"
          />
        </div>
        <SegmentedControl
          label="Status"
          value={filter}
          onChange={setFilter}
          options={FILTER_LABELS.map(([value, label]) => ({ value, label, count: adapters.filter(FILTERS[value]).length }))}
        />
        <p role="status" className="ml-auto text-xs text-ink-3">
          {plural(shown.length, "adapter")}
        </p>
      </div>
      <Card>
        {shown.length > 0 ? (
          <>
            <AdapterTable adapters={shown.slice(first, first + ROWS)} sorting={sorting} onSort={setSorting} />
            <Pager page={first / ROWS} size={ROWS} total={shown.length} onPage={setPage} />
          </>
        ) : (
          <Empty
            icon={<Search />}
            title="Nothing matches"
            action={
              <Button
                onClick={() => {
                  setNeedle("");
                  setFilter("all");
                }}
              >
                Show all adapters
              </Button>
            }
          >
            No adapter with this name, description and status.
          </Empty>
        )}
      </Card>
    </>
  );
}

interface TableProps {
  adapters: AdapterSummary[];
  sorting: Sorting;
  onSort: (sorting: Sorting) => void;
}

function AdapterTable({ adapters, sorting, onSort }: TableProps) {
  const header = { sorting, onSort };
  return (
    <Table label="Adapters">
      <thead>
        <tr>
          <SortTh column="name" {...header}>
            Name
          </SortTh>
          <Th>Status</Th>
          <Th>Live</Th>
          <SortTh column="rank" align="right" {...header}>
            Rank
          </SortTh>
          <Th className="max-md:hidden">Targets</Th>
          <SortTh column="bytes" align="right" className="max-md:hidden" {...header}>
            Size
          </SortTh>
          <Th className="max-lg:hidden">Base</Th>
          <SortTh column="created_at" align="right" className="max-md:hidden" {...header}>
            Created
          </SortTh>
        </tr>
      </thead>
      <tbody>
        {adapters.map((adapter) => (
          <AdapterRow key={adapter.name} adapter={adapter} />
        ))}
      </tbody>
    </Table>
  );
}

function AdapterRow({ adapter }: { adapter: AdapterSummary }) {
  const tenant = useTenant();
  return (
    <Tr className="relative">
      <Td className="max-w-44 sm:max-w-80">
        {/* The link covers its row, so that the whole of it is one target. */}
        <Link
          to="/t/$tenant/adapters/$name"
          params={{ tenant, name: adapter.name }}
          className="font-medium after:absolute after:inset-0 focus-visible:outline-none focus-visible:after:outline-2 focus-visible:after:-outline-offset-2 focus-visible:after:outline-focus"
        >
          {adapter.name}
        </Link>
        {adapter.description && <span className="block truncate text-xs text-ink-3">{adapter.description}</span>}
      </Td>
      <Td>
        <AdapterState state={adapter.status} />
      </Td>
      <Td>
        {adapter.live_version ? <Badge>v{adapter.live_version}</Badge> : <span className="text-ink-3">none</span>}
        <span className="ml-2 hidden text-xs text-ink-3 md:inline">{plural(adapter.versions_count, "version")}</span>
      </Td>
      <Td className="tnum text-right">{adapter.rank ?? <span className="text-ink-3">–</span>}</Td>
      <Td className="max-md:hidden">
        <TargetModules targets={adapter.targets} />
      </Td>
      <Td className="tnum text-right max-md:hidden">{adapter.bytes === null ? <span className="text-ink-3">–</span> : bytes(adapter.bytes)}</Td>
      <Td className="text-ink-2 max-lg:hidden">{adapter.base_model ?? <span className="text-ink-3">–</span>}</Td>
      <Td className="text-right text-ink-3 max-md:hidden">
        <RelativeTime at={adapter.created_at} />
      </Td>
    </Tr>
  );
}

interface SortThProps {
  column: Column;
  sorting: Sorting;
  onSort: (sorting: Sorting) => void;
  align?: "right";
  className?: string;
  children: ReactNode;
}

function SortTh({ column, sorting, onSort, align, className, children }: SortThProps) {
  const active = sorting.by === column;
  const Arrow = sorting.down ? ArrowDown : ArrowUp;
  return (
    <Th aria-sort={active ? (sorting.down ? "descending" : "ascending") : "none"} className={cn(align === "right" && "text-right", className)}>
      <button
        type="button"
        onClick={() => onSort({ by: column, down: active && !sorting.down })}
        className="inline-flex items-center gap-1 rounded hover:text-ink"
      >
        {children}
        {active && <Arrow className="size-3" aria-hidden />}
      </button>
    </Th>
  );
}
