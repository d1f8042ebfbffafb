import { getRouteApi } from "@tanstack/react-router";
import { ChevronRight, Search } from "lucide-react";
import { useId } from "react";
import type { Host } from "@/api/types";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { Empty } from "@/components/notices";
import { Pager } from "@/components/pager";
import { RelativeTime } from "@/components/relative-time";
import { SearchInput } from "@/components/search-input";
import { SegmentedControl } from "@/components/segmented-control";
import type { useTimeRange } from "@/components/time-range";
import { cn } from "@/lib/cn";
import { number, percent, plural } from "@/lib/format";
import { HostDetails, madeOf } from "./host-card";
import { HostStatus, isHeard, isUsed } from "./host-status";
import { PoolBar } from "./page-pool";
import type { HostsSearch, Use } from "./search";

const PAGE = 50;

const route = getRouteApi("/t/$tenant/hosts");

const USES: { value: Use | "all"; label: string }[] = [
  { value: "all", label: "All" },
  { value: "used", label: "In use" },
  { value: "unused", label: "Not in use" },
];

interface HostListProps {
  hosts: Host[];
  range: ReturnType<typeof useTimeRange>;
}

/** A list of many hosts with one line each; the selected one shows its details. */
export function HostList({ hosts, range }: HostListProps) {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const show = (change: HostsSearch) =>
    void navigate({ search: (now) => ({ ...now, ...change }), replace: true, resetScroll: false });
  const opened = search.host ?? search.map;
  const needle = search.q?.toLowerCase() ?? "";
  const matches = hosts.filter((host) => fits(host, needle, search.use));
  const pageOfOpened = Math.floor(
    Math.max(
      0,
      matches.findIndex(({ name }) => name === opened),
    ) / PAGE,
  );
  // The host in the address may no longer exist.
  const page = Math.min(search.page ?? pageOfOpened, Math.max(0, Math.ceil(matches.length / PAGE) - 1));
  return (
    <>
      <div className="mb-3 flex flex-wrap items-center gap-3">
        <SearchInput
          landmark="Hosts"
          className="w-full sm:w-72"
          label="Search by name, model or device"
          value={search.q}
          onChange={(q) => show({ q, page: undefined })}
        />
        <SegmentedControl
          label="Use"
          value={search.use ?? "all"}
          onChange={(use) => show({ use: use === "all" ? undefined : use, page: undefined })}
          options={USES}
        />
        <p role="status" className="ml-auto text-xs text-ink-3">
          {matches.length < hosts.length
            ? `${number(matches.length)} of ${plural(hosts.length, "host")}`
            : `${plural(hosts.length, "host")}, ${number(hosts.filter(isUsed).length)} in use`}
        </p>
      </div>
      <Card>
        {matches.length === 0 && (
          <Empty
            icon={<Search />}
            title="No matches"
            action={<Button onClick={() => show({ q: undefined, use: undefined })}>Show all hosts</Button>}
          >
            No host with this name, model, device and use.
          </Empty>
        )}
        <ul className="divide-y">
          {matches.slice(page * PAGE, (page + 1) * PAGE).map((host) => (
            <HostRow
              key={host.name}
              host={host}
              range={range}
              open={host.name === opened}
              onOpen={(open) => show({ host: open ? host.name : undefined, map: undefined })}
            />
          ))}
        </ul>
        <Pager
          page={page}
          size={PAGE}
          total={matches.length}
          onPage={(page) => show({ page, host: undefined, map: undefined })}
        />
      </Card>
    </>
  );
}

function fits(host: Host, needle: string, use: Use | undefined): boolean {
  if (use && isUsed(host) !== (use === "used")) return false;
  return [host.name, host.model, host.device].some((text) => text.toLowerCase().includes(needle));
}

interface HostRowProps {
  host: Host;
  range: HostListProps["range"];
  open: boolean;
  onOpen: (open: boolean) => void;
}

function HostRow({ host, range, open, onOpen }: HostRowProps) {
  const details = useId();
  return (
    <li aria-label={`Host ${host.name}`}>
      <button
        type="button"
        aria-expanded={open}
        aria-controls={open ? details : undefined}
        onClick={() => onOpen(!open)}
        className="grid w-full grid-cols-[1rem_minmax(0,1fr)] items-center gap-x-3 gap-y-2 px-4 py-2.5 text-left -outline-offset-2 hover:bg-fill/60 lg:grid-cols-[1rem_minmax(0,1fr)_11rem_12rem]"
      >
        <ChevronRight className={cn("size-4 text-ink-3 transition-transform", open && "rotate-90")} aria-hidden />
        <span className="min-w-0">
          <span className="flex flex-wrap items-center gap-x-2.5 gap-y-1">
            <span className="min-w-0 font-medium wrap-anywhere">{host.name}</span>
            <HostStatus host={host} />
          </span>
          <span className="block truncate text-xs text-ink-3" title={madeOf(host)}>
            {madeOf(host)}
          </span>
        </span>
        <span className="grid gap-1 max-lg:col-start-2">
          <PoolBar pool={host.pool} />
          <span className="tnum text-xs text-ink-3">
            {host.pool.total > 0
              ? `${percent(host.pool.free, host.pool.total)} of the pool free${isHeard(host) ? "" : " then"}`
              : "no pool yet"}
          </span>
        </span>
        <span className="tnum flex flex-wrap gap-x-3 text-xs text-ink-3 max-lg:col-start-2 lg:block lg:text-right">
          {isHeard(host) ? (
            <>
              <span className="block">
                {number(host.running)} running, {number(host.waiting)} waiting
              </span>
              <span className="block">{number(Math.round(host.tokens_per_second))} tok/s</span>
            </>
          ) : (
            <span className="block">
              last heard <RelativeTime at={host.last_seen} />
            </span>
          )}
        </span>
      </button>
      {open && (
        <div id={details} role="region" aria-label={`Details of ${host.name}`} className="border-t">
          <h2 className="sr-only">{host.name}</h2>
          <p className="border-b px-4 py-2 text-xs text-ink-3">
            seen <RelativeTime at={host.last_seen} />
          </p>
          <HostDetails host={host} range={range} />
        </div>
      )}
    </li>
  );
}
