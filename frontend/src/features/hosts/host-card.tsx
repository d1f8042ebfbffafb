import { getRouteApi } from "@tanstack/react-router";
import { Cpu } from "lucide-react";
import { Suspense } from "react";
import type { Host } from "@/api/types";
import { Badge } from "@/components/badge";
import { Card } from "@/components/card";
import { RelativeTime } from "@/components/relative-time";
import { Table, Td, Tr } from "@/components/table";
import type { useTimeRange } from "@/components/time-range";
import { bytes, number, percent, plural, shortDigest } from "@/lib/format";
import { lazyPart } from "@/lib/lazy-part";
import { coldStart, loadRates } from "./cold-start";
import { HostStatus, isHeard, QuarantineNotice } from "./host-status";
import { HostTraffic } from "./host-traffic";
import { PoolBar, PoolLegend } from "./page-pool";
import { Shares } from "./shares";
import { TIERS } from "./tiers";

const route = getRouteApi("/t/$tenant/hosts");

const PageOwnersSection = lazyPart(() => import("./page-owners"), "PageOwnersSection");

interface HostProps {
  host: Host;
  range: ReturnType<typeof useTimeRange>;
}

export function HostCard({ host, range }: HostProps) {
  return (
    <Card aria-label={`Host ${host.name}`}>
      <div className="flex flex-wrap items-center gap-x-4 gap-y-2 border-b px-4 py-3">
        <Cpu className="size-4 text-ink-3" aria-hidden />
        <h2 className="min-w-0 text-base font-semibold wrap-anywhere">{host.name}</h2>
        <HostStatus host={host} />
        <span className="min-w-0 text-sm wrap-anywhere text-ink-3">{madeOf(host)}</span>
        <span className="ml-auto text-xs text-ink-3">
          seen <RelativeTime at={host.last_seen} />
        </span>
      </div>
      <HostDetails host={host} range={range} />
    </Card>
  );
}

export const madeOf = ({ model, device }: Host) => (model ? `${model} on ${device}` : "never seen");

/** The details of a host, without its name and state. */
export function HostDetails({ host, range }: HostProps) {
  const { map } = route.useSearch();
  const navigate = route.useNavigate();
  const show = (name: string | undefined) =>
    void navigate({ search: (now) => ({ ...now, map: name }), replace: true, resetScroll: false });
  return (
    <>
      <QuarantineNotice host={host} />
      {!isHeard(host) && host.last_seen && (
        <p role="note" className="border-b bg-fill px-4 py-2 text-sm text-ink-2">
          The host is not connected. Figures, memory and adapters are as of <RelativeTime at={host.last_seen} />.
        </p>
      )}
      <dl className="grid grid-cols-2 gap-px border-b bg-line sm:grid-cols-4">
        <Figure label="Running" value={number(host.running)} />
        <Figure label="Waiting" value={number(host.waiting)} />
        <Figure label="Tokens per second" value={number(Math.round(host.tokens_per_second))} />
        <Figure
          label="Page pool"
          value={bytes(host.pool.total * host.page_bytes)}
          note={`${number(host.pool.total)} × ${bytes(host.page_bytes)}`}
        />
      </dl>
      {host.experts && <Experts experts={host.experts} />}
      <div className="px-4 py-4">
        <PoolBar pool={host.pool} className="h-3.5!" />
        <PoolLegend pool={host.pool} pageBytes={host.page_bytes} />
      </div>
      <Suspense>
        <PageOwnersSection
          host={host.name}
          open={map === host.name}
          onOpen={(open) => show(open ? host.name : undefined)}
        />
      </Suspense>
      {host.share && (
        <div className="border-t">
          <h3 className="px-4 pt-3 text-xs font-medium text-ink-3">Your share of this host now</h3>
          <Shares
            label={`Your share of ${host.name}`}
            noun="Host"
            rows={[{ ...host.share, id: host.name, label: host.name }]}
          />
        </div>
      )}
      <HostTraffic host={host.name} range={range} />
      <Residents host={host} />
      {host.boot_id && <p className="border-t px-4 py-2 font-mono text-2xs text-ink-3">boot {host.boot_id}</p>}
    </>
  );
}

const shareOf = (part: number, total: number) => (total ? percent(part, total) : "–");

/** The experts of adapters in the page pool, and how often others are read, on a host of a mixture of experts. */
function Experts({ experts }: { experts: NonNullable<Host["experts"]> }) {
  const all = experts.setting === "full";
  return (
    <dl className="grid grid-cols-1 gap-px border-b bg-line sm:grid-cols-3">
      <Figure
        label="Adapters’ experts in the page pool"
        value={all ? "All" : shareOf(experts.resident, experts.total)}
        note={all ? undefined : `${number(experts.resident)} of ${number(experts.total)}`}
      />
      <Figure
        label="Read from host memory, last minute"
        value={all ? "None" : shareOf(experts.recent_host_pairs, experts.recent_pairs)}
        note={all ? undefined : `of ${plural(experts.recent_pairs, "pair")} of a token and an expert`}
      />
      <Figure label="Expert residency" value={experts.setting} />
    </dl>
  );
}

function Figure({ label, value, note }: { label: string; value: string; note?: string }) {
  return (
    <div className="bg-surface px-4 py-3">
      <dt className="text-xs text-ink-3">{label}</dt>
      <dd className="tnum mt-0.5 text-lg font-semibold tracking-tight">
        {value}{" "}
        {note && <span className="hidden text-xs sm:inline font-normal tracking-normal text-ink-3">{note}</span>}
      </dd>
    </div>
  );
}

/** Maximum number of adapters of the same content that are named in one row. */
const MAX_NAMES = 1;

function Names({ names }: { names: string[] }) {
  const more = names.length - MAX_NAMES;
  return (
    <span title={more > 0 ? names.join(", ") : undefined}>
      {names.slice(0, MAX_NAMES).join(", ")}
      {more > 0 && <span className="font-normal text-ink-3"> and {plural(more, "other")}</span>}
    </span>
  );
}

const TIER_ORDER = Object.keys(TIERS);

function Residents({ host: { name, adapters, load_times: times = [] } }: { host: Host }) {
  if (adapters.length === 0)
    return <p className="border-t px-4 py-3 text-sm text-ink-3">None of your adapters are on this host.</p>;
  const sorted = adapters.toSorted(
    (a, b) => TIER_ORDER.indexOf(a.tier) - TIER_ORDER.indexOf(b.tier) || a.name.localeCompare(b.name),
  );
  return (
    <div className="border-t">
      <h3 className="px-4 pt-3 text-xs font-medium text-ink-3">
        {number(adapters.length)} of your adapters on this host
      </h3>
      <Table
        label={`Your adapters on ${name}`}
        columns={[
          "Adapter",
          "Tier",
          ["Rank", "text-right"],
          ["Size", "text-right"],
          ["Cold start", "text-right"],
          ["Running", "text-right"],
        ]}
      >
        {sorted.map((adapter) => (
          <Tr key={adapter.digest}>
            <Td className="font-medium">
              <Names names={adapter.names ?? [adapter.name]} />
              <span className="ml-2 font-mono text-2xs font-normal text-ink-3">{shortDigest(adapter.digest)}</span>
            </Td>
            <Td>
              <Badge tone={TIERS[adapter.tier].tone}>{TIERS[adapter.tier].label}</Badge>
              {adapter.experts && (
                <span className="tnum ml-2 text-xs text-ink-3">
                  {percent(adapter.experts.resident, adapter.experts.total)} of its experts in the pool
                </span>
              )}
            </Td>
            <Td className="tnum text-right">{adapter.rank}</Td>
            <Td className="tnum text-right">{bytes(adapter.bytes)}</Td>
            <Td className="tnum text-right">{coldStart(adapter.cold_start_ms)}</Td>
            <Td className="tnum text-right">{number(adapter.running)}</Td>
          </Tr>
        ))}
      </Table>
      <p className="px-4 py-2.5 text-xs text-ink-3">
        Cold start: how long a request would wait for its adapter to load, without the queue.{" "}
        {loadRates(times) ? `Measured here: ${loadRates(times)}.` : "This engine has not loaded an adapter yet."}
      </p>
    </div>
  );
}
