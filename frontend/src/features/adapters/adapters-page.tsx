import { getRouteApi, Link } from "@tanstack/react-router";
import { Boxes, Search, Upload } from "lucide-react";
import type { ReactNode } from "react";
import type { AdapterSummary } from "@/api/types";
import { Page } from "@/app/page";
import { useQuery } from "@/app/use-query";
import { Badge } from "@/components/badge";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { Empty, ErrorNotice, SkeletonRows } from "@/components/notices";
import { Pager } from "@/components/pager";
import { SearchInput } from "@/components/search-input";
import { SegmentedControl } from "@/components/segmented-control";
import { SortTh } from "@/components/sort-th";
import { Table, Td, Tr } from "@/components/table";
import { TargetModules } from "@/components/target-modules";
import { RelativeTime } from "@/components/relative-time";
import { useCan, useTenant } from "@/features/session/queries";
import { bytes, plural } from "@/lib/format";
import { ADAPTERS_PAGE, adaptersPageQuery } from "./queries";
import type { AdaptersSearch } from "./search";
import { AdapterState } from "./version-status";
import { Archived, Storage } from "./storage";

const route = getRouteApi("/t/$tenant/adapters");

export function AdaptersPage() {
  const tenant = useTenant();
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const show = (change: AdaptersSearch) =>
    void navigate({
      search: (now) => ({ ...now, page: undefined, ...change }),
      replace: true,
      resetScroll: change.page !== search.page,
    });
  const { data, error, refetch } = useQuery(adaptersPageQuery(tenant, search));
  const none = data?.total === 0 && !search.q && !search.status;
  const upload = useCan("adapters.write") && (
    <Button variant="primary" asChild>
      <Link to="/t/$tenant/upload" params={{ tenant }}>
        <Upload /> Upload adapter
      </Link>
    </Button>
  );
  return (
    <Page
      title="Adapters"
      note="Each adapter can be called as a model by its name. Versions are immutable; you choose which one is live."
      actions={data && !none ? upload : null}
      wide
    >
      <ErrorNotice error={error} onRetry={refetch} />
      {!error && !data && (
        <Card>
          <SkeletonRows rows={6} />
        </Card>
      )}
      {none && <NoAdapters upload={upload} tenant={tenant} />}
      {data && !none && <List adapters={data.rows} total={data.total} search={search} show={show} />}
      {!error && (
        <div className="mt-5 grid items-start gap-5 empty:hidden">
          <Storage />
          <Archived search={search} show={(change) => show({ page: search.page, ...change })} />
        </div>
      )}
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
        Upload the folder written by PEFT. It is validated against the base model in seconds and can be called once it
        is staged.
      </Empty>
    </Card>
  );
}

type Filter = "all" | NonNullable<AdaptersSearch["status"]>;

const FILTERS: { value: Filter; label: string }[] = [
  { value: "all", label: "All" },
  { value: "ready", label: "Ready" },
  { value: "staging", label: "Staging" },
  { value: "failed", label: "Failed" },
];

interface ListProps {
  adapters: AdapterSummary[];
  total: number;
  search: AdaptersSearch;
  show: (change: AdaptersSearch) => void;
}

function List({ adapters, total, search, show }: ListProps) {
  return (
    <>
      <div className="mb-3 flex flex-wrap items-center gap-3">
        <SearchInput
          landmark="Adapters"
          className="w-full sm:w-72"
          label="Search by name or description"
          value={search.q}
          onChange={(q) => show({ q })}
        />
        <SegmentedControl
          label="Status"
          value={search.status ?? "all"}
          onChange={(status) => show({ status: status === "all" ? undefined : status })}
          options={FILTERS}
        />
        <p role="status" className="ml-auto text-xs text-ink-3">
          {plural(total, "adapter")}
        </p>
      </div>
      <Card>
        {total > 0 ? (
          <AdapterTable
            adapters={adapters}
            sort={search.sort ?? "name"}
            onSort={(sort) => show({ sort: sort === "name" ? undefined : sort })}
          />
        ) : (
          <Empty
            icon={<Search />}
            title="No matches"
            action={<Button onClick={() => show({ q: undefined, status: undefined })}>Show all adapters</Button>}
          >
            No adapter matches this search and status.
          </Empty>
        )}
        <Pager page={search.page} size={ADAPTERS_PAGE} total={total} onPage={(page) => show({ page })} />
      </Card>
    </>
  );
}

type Sort = NonNullable<AdaptersSearch["sort"]>;

interface TableProps {
  adapters: AdapterSummary[];
  sort: Sort;
  onSort: (sort: Sort) => void;
}

function AdapterTable({ adapters, sort, onSort }: TableProps) {
  const header = { sort, onSort };
  return (
    <Table
      label="Adapters"
      columns={[
        <SortTh label="Name" column="name" {...header} />,
        "Status",
        "Live",
        <SortTh label="Rank" column="rank" align="right" className="max-sm:hidden" {...header} />,
        ["Targets", "max-lg:hidden"],
        <SortTh label="Size" column="bytes" align="right" className="max-md:hidden" {...header} />,
        ["Base model", "max-xl:hidden"],
        <SortTh label="Created" column="created_at" align="right" className="max-md:hidden" {...header} />,
      ]}
    >
      {adapters.map((adapter) => (
        <AdapterRow key={adapter.name} adapter={adapter} />
      ))}
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
          className="block min-w-36 font-medium wrap-anywhere whitespace-normal after:absolute after:inset-0 focus-visible:outline-none focus-visible:after:outline-2 focus-visible:after:-outline-offset-2 focus-visible:after:outline-focus"
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
      <Td className="tnum text-right max-sm:hidden">{adapter.rank ?? <span className="text-ink-3">–</span>}</Td>
      <Td className="max-lg:hidden [&>*]:flex-nowrap">
        <TargetModules targets={adapter.targets} />
      </Td>
      <Td className="tnum text-right max-md:hidden">
        {adapter.bytes === null ? <span className="text-ink-3">–</span> : bytes(adapter.bytes)}
      </Td>
      <Td className="text-ink-2 max-xl:hidden">{adapter.base_model ?? <span className="text-ink-3">–</span>}</Td>
      <Td className="text-right text-ink-3 max-md:hidden">
        <RelativeTime at={adapter.created_at} />
      </Td>
    </Tr>
  );
}
