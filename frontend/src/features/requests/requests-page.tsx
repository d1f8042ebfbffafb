import { type InfiniteData, type UseInfiniteQueryResult, useQueryClient } from "@tanstack/react-query";
import { Activity, CircleSlash, Pause, Play } from "lucide-react";
import { getRouteApi } from "@tanstack/react-router";
import { type ReactNode, Suspense } from "react";
import { useConnectionState } from "@/app/live-connection";
import { Page } from "@/app/page";
import { chooseColumns, useColumns } from "@/app/preferences";
import { useInfiniteQuery, useQuery } from "@/app/use-query";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { ColumnChooser } from "@/components/column-chooser";
import { Empty, ErrorNotice, SkeletonRows } from "@/components/notices";
import { SegmentedControl } from "@/components/segmented-control";
import { useTenant } from "@/features/session/queries";
import { plural } from "@/lib/format";
import { cn } from "@/lib/cn";
import { lazyPart } from "@/lib/lazy-part";
import { snippet } from "@/lib/snippets";
import { recordingQuery, refusalsQuery, requestsQuery } from "./queries";
import { ALL_COLUMNS, COLUMNS, DEFAULT_COLUMNS } from "./columns";
import { RequestFilters } from "./request-filters";
import { RequestTable } from "./request-table";
import { isFiltered, NO_FILTERS, type RequestsSearch } from "./search";
import { useEnded, useTail } from "./use-tail";

const RefusalTable = lazyPart(() => import("./refusal-table"), "RefusalTable");

const route = getRouteApi("/t/$tenant/requests");

const VIEWS = [
  { value: "requests", label: "Requests" },
  { value: "refusals", label: "Refusals" },
] as const;

export function RequestsPage() {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const view = search.view ?? "requests";
  const setView = (next: (typeof VIEWS)[number]["value"]) =>
    void navigate({ search: { view: next === "refusals" ? next : undefined } });
  const { data: recording } = useQuery(recordingQuery(useTenant()));
  const kept = recording?.enabled
    ? `Prompts and answers are kept for ${plural(recording.days, "day")}.`
    : "Prompts and answers are not kept.";
  return (
    <Page
      title="Requests"
      wide
      note={
        view === "requests"
          ? `All requests that an engine ran. ${kept}`
          : "Requests that were refused before an engine ran them, counted by minute, key and reason. Kept for 30 days."
      }
      actions={<SegmentedControl label="Which requests" value={view} options={VIEWS} onChange={setView} />}
    >
      {view === "requests" ? <RequestList /> : <RefusalList />}
    </Page>
  );
}

function RequestList() {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const query = useInfiniteQuery(requestsQuery(useTenant(), search));
  const show = (change: RequestsSearch) =>
    void navigate({ search: (now) => ({ ...now, open: undefined, ...change }), replace: true, resetScroll: false });
  // A link to a single request opens its row.
  const open = search.open ?? search.id;
  const archivedBefore = query.data?.pages.at(-1)?.archived_before;
  const columns = useColumns("requests", ALL_COLUMNS, DEFAULT_COLUMNS);
  return (
    <>
      <RequestFilters search={search} onChange={show} />
      <div className="mb-2 flex flex-wrap items-center gap-x-3 gap-y-1">
        {follows(search) && (
          <Tail
            search={search}
            onPause={(paused) =>
              void navigate({ search: (now) => ({ ...now, paused }), replace: true, resetScroll: false })
            }
          />
        )}
        <span className="ml-auto max-sm:hidden">
          <ColumnChooser
            labels={COLUMNS}
            shown={columns}
            onChange={(shown) => chooseColumns("requests", shown)}
            onReset={() => chooseColumns("requests", null)}
          />
        </span>
      </div>
      <Paged
        query={query}
        older="Load older requests"
        empty={isFiltered(search) ? <NothingFits onClear={() => show(NO_FILTERS)} /> : <NoRequests />}
      >
        {(rows) => <RequestTable rows={rows} columns={columns} open={open} onOpen={(id) => show({ open: id })} />}
      </Paged>
      {archivedBefore && (
        <p className="mt-2 px-1 text-sm text-ink-2">
          Requests before {archivedBefore} are archived and not listed here. Usage, statements and exports count them.
        </p>
      )}
    </>
  );
}

/** Returns whether new requests can match the filters. */
const follows = ({ id, until }: RequestsSearch) => id === undefined && until === undefined;

interface TailProps {
  search: RequestsSearch;
  onPause: (paused?: true) => void;
}

function Tail({ search, onPause }: TailProps) {
  const client = useQueryClient();
  const tenant = useTenant();
  const goOn = () => {
    void client.invalidateQueries({ queryKey: requestsQuery(tenant, search).queryKey });
    onPause();
  };
  return (
    <div className="flex min-h-8 flex-wrap items-center gap-x-3 gap-y-1 text-xs text-ink-3">
      <Button size="sm" onClick={search.paused ? goOn : () => onPause(true)} data-testid="tail">
        {search.paused ? <Play /> : <Pause />} {search.paused ? "Resume" : "Pause"}
      </Button>
      {search.paused ? <Paused /> : <Following search={search} />}
    </div>
  );
}

function Paused() {
  const ended = useEnded();
  return (
    <span className="tnum">{ended > 0 ? `Paused: ${plural(ended, "request")} ended in the meantime` : "Paused"}</span>
  );
}

function Following({ search }: { search: RequestsSearch }) {
  useTail(search);
  const live = useConnectionState() === "open";
  return (
    <span className="inline-flex items-center gap-1.5">
      <span aria-hidden className={cn("size-1.5 rounded-full", live ? "bg-series-1" : "bg-ink-3")} />
      {live ? "Live: requests appear as they end" : "Not connected: new requests appear after reconnecting"}
    </span>
  );
}

function NothingFits({ onClear }: { onClear: () => void }) {
  return (
    <Empty icon={<Activity />} title="No matches" action={<Button onClick={onClear}>Clear filters</Button>}>
      No request matches these filters. Requests refused before an engine ran them are listed under refusals.
    </Empty>
  );
}

function RefusalList() {
  const query = useInfiniteQuery(refusalsQuery(useTenant()));
  return (
    <Paged query={query} older="Load older refusals" empty={<NoRefusals />}>
      {(rows) => (
        <Suspense fallback={<SkeletonRows rows={8} />}>
          <RefusalTable rows={rows} />
        </Suspense>
      )}
    </Paged>
  );
}

interface PagedProps<Row> {
  query: UseInfiniteQueryResult<InfiniteData<{ results: Row[] }>>;
  older: string;
  empty: ReactNode;
  children: (rows: Row[]) => ReactNode;
}

function Paged<Row>({ query, older, empty, children }: PagedProps<Row>) {
  const { data, error, refetch, hasNextPage, fetchNextPage, isFetchingNextPage } = query;
  if (error && !data) return <ErrorNotice error={error} onRetry={refetch} />;
  const rows = data?.pages.flatMap((page) => page.results);
  return (
    <Card>
      {!rows && <SkeletonRows rows={8} />}
      {rows?.length === 0 && (hasNextPage ? <NoneYet /> : empty)}
      {rows && rows.length > 0 && children(rows)}
      <ErrorNotice error={error} onRetry={fetchNextPage} className="m-4" />
      {hasNextPage && (
        <div className="border-t p-2.5 text-center">
          <Button size="sm" variant="ghost" busy={isFetchingNextPage} onClick={() => void fetchNextPage()}>
            {isFetchingNextPage ? "Loading…" : older}
          </Button>
        </div>
      )}
    </Card>
  );
}

/** A notice that nothing matches so far, because the server searches a part of a long history at a time. */
const NoneYet = () => (
  <p className="px-4 py-8 text-center text-sm text-ink-2">
    No match among the newest requests. Older requests have not been searched yet.
  </p>
);

function NoRequests() {
  return (
    <Empty
      icon={<Activity />}
      title="No requests yet"
      command={snippet("curl", { model: "lorikeet-demo", origin: location.origin })}
    >
      Requests appear here when they end. Send the first one from the playground, or with an API key:
    </Empty>
  );
}

function NoRefusals() {
  return (
    <Empty icon={<CircleSlash />} title="No refused requests">
      Requests that exceed a limit, name something that does not exist, or are invalid are counted here by minute, key
      and reason. Kept for 30 days.
    </Empty>
  );
}
