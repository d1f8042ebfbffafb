import { Link } from "@tanstack/react-router";
import { ArrowRight, KeyRound, MessagesSquare, Upload } from "lucide-react";
import type { Host, Overview } from "@/api/types";
import { Page } from "@/app/page";
import { useQuery } from "@/app/use-query";
import { StackedBar } from "@/components/bars";
import { Button } from "@/components/button";
import { Card, Stat, Stats } from "@/components/card";
import { RelativeTime } from "@/components/relative-time";
import { Snippets } from "@/components/snippets";
import { Empty, ErrorNotice, Skeleton } from "@/components/notices";
import { modelsQuery } from "@/features/adapters/queries";
import { BudgetNotice } from "@/features/budgets/budget-notice";
import { HostStatus, isHeard, isUsed } from "@/features/hosts/host-status";
import { PoolBar } from "@/features/hosts/page-pool";
import { RequestTable } from "@/features/requests/request-table";
import { useCan, useSession, useTenant } from "@/features/session/queries";
import { usageQuery } from "@/features/usage/queries";
import { LANGUAGES } from "@/lib/snippets";
import { number, percent, plural, short } from "@/lib/format";
import { overviewQuery } from "./queries";
import { FirstSteps } from "./first-steps";
import { Sparkline } from "./sparkline";

export function OverviewPage() {
  const tenant = useTenant();
  const name = useSession().tenants.find(({ slug }) => slug === tenant)?.name;
  const { data, error, refetch } = useQuery(overviewQuery(tenant));
  return (
    <Page title="Overview" note={`Current activity of ${name ?? tenant}.`} actions={<Actions />}>
      <ErrorNotice error={error} onRetry={refetch} />
      {!error && !data && <Loading />}
      {data && <Content overview={data} />}
    </Page>
  );
}

function Actions() {
  const tenant = useTenant();
  return (
    <>
      <Button asChild>
        <Link to="/t/$tenant/playground" params={{ tenant }}>
          <MessagesSquare /> Playground
        </Link>
      </Button>
      {useCan("adapters.write") && (
        <Button variant="primary" asChild>
          <Link to="/t/$tenant/upload" params={{ tenant }}>
            <Upload /> Upload adapter
          </Link>
        </Button>
      )}
    </>
  );
}

function Loading() {
  return (
    <div role="status" aria-label="Loading" className="grid gap-5">
      <Skeleton className="h-24 w-full" />
      <Skeleton className="h-72 w-full" />
    </div>
  );
}

function Content({ overview }: { overview: Overview }) {
  return (
    <div className="grid gap-5">
      <BudgetNotice />
      <Figures overview={overview} />
      <FirstSteps done={overview.first_steps} />
      <div className="grid items-start gap-5 xl:grid-cols-[minmax(0,1.75fr)_minmax(0,1fr)]">
        <Recent overview={overview} />
        <div className="grid gap-5">
          <Hosts hosts={overview.hosts} />
          <MostUsedAdapters />
        </div>
      </div>
      <GettingStarted />
    </div>
  );
}

function Figures({ overview }: { overview: Overview }) {
  const { data: usage } = useQuery(usageQuery(useTenant(), 7));
  const used = overview.hosts.filter(isUsed);
  const speed = used.reduce((sum, host) => sum + host.tokens_per_second, 0);
  return (
    <Stats>
      <Stat
        label="Adapters ready"
        value={<Of part={overview.adapters.ready} whole={overview.adapters.total} />}
        note={readiness(overview)}
      />
      <Stat
        label="Tokens, 24 h"
        value={short(overview.tokens_24h)}
        note="prompt and completion"
        aside={
          usage && (
            <Sparkline
              label="Tokens over the last 7 days"
              values={usage.by_day.map((day) => day.prompt_tokens + day.completion_tokens)}
            />
          )
        }
      />
      <Stat
        label="Requests, 24 h"
        value={short(overview.requests_24h)}
        note="finished or not"
        aside={
          usage && <Sparkline label="Requests over the last 7 days" values={usage.by_day.map((day) => day.requests)} />
        }
      />
      <Stat
        label="Hosts in use"
        value={<Of part={used.length} whole={overview.hosts.length} />}
        note={`${number(Math.round(speed))} tokens/s now`}
      />
    </Stats>
  );
}

function readiness({ adapters }: Overview): string {
  if (adapters.total === 0) return "none uploaded yet";
  return adapters.ready === adapters.total
    ? "all can be called"
    : `${number(adapters.total - adapters.ready)} not ready`;
}

function Of({ part, whole }: { part: number; whole: number }) {
  return (
    <>
      {number(part)}
      <span className="text-base font-normal text-ink-3"> / {number(whole)}</span>
    </>
  );
}

function Recent({ overview }: { overview: Overview }) {
  const tenant = useTenant();
  const rows = overview.recent_requests.slice(0, 8);
  return (
    <Card
      title="Recent requests"
      actions={
        <Button size="sm" variant="ghost" asChild>
          <Link to="/t/$tenant/requests" params={{ tenant }}>
            All requests <ArrowRight />
          </Link>
        </Button>
      }
    >
      {rows.length > 0 ? (
        <RequestTable rows={rows} />
      ) : (
        <Empty icon={<MessagesSquare />} title="No requests yet">
          Requests appear here when they end.
        </Empty>
      )}
    </Card>
  );
}

/** Maximum number of hosts that are shown, the busiest first. */
const MAX_HOSTS = 5;

function Hosts({ hosts }: { hosts: Host[] }) {
  const tenant = useTenant();
  const shown =
    hosts.length <= MAX_HOSTS
      ? hosts
      : hosts.toSorted((a, b) => Number(isUsed(b)) - Number(isUsed(a)) || b.running - a.running).slice(0, MAX_HOSTS);
  const unused = hosts.filter((host) => !isUsed(host)).length;
  return (
    <Card
      title="Hosts"
      actions={
        <Button size="sm" variant="ghost" asChild>
          <Link to="/t/$tenant/hosts" params={{ tenant }}>
            Details <ArrowRight />
          </Link>
        </Button>
      }
    >
      {hosts.length === 0 && (
        <p className="px-4 py-6 text-sm text-ink-3">
          No engine host is configured. Start one with <code className="font-mono text-xs">make run</code>.
        </p>
      )}
      <ul className="divide-y">
        {shown.map((host) => (
          <li key={host.name} className="grid grid-cols-[minmax(0,1fr)] gap-2.5 px-4 py-3.5">
            <div className="flex flex-wrap items-center gap-x-2.5 gap-y-1">
              <span className="min-w-0 font-medium wrap-anywhere">{host.name}</span>
              <HostStatus host={host} />
              <span className="tnum ml-auto text-xs whitespace-nowrap text-ink-3">
                {isHeard(host) ? (
                  `${number(host.running)} running · ${number(Math.round(host.tokens_per_second))} tok/s`
                ) : (
                  <RelativeTime at={host.last_seen} />
                )}
              </span>
            </div>
            <PoolBar pool={host.pool} />
            <p className="tnum flex justify-between gap-3 text-xs text-ink-3">
              <span className="truncate" title={host.model ? `${host.model} on ${host.device}` : undefined}>
                {host.model ? `${host.model} on ${host.device}` : "never seen"}
              </span>
              <span className="whitespace-nowrap">
                {host.pool.total > 0 ? `${percent(host.pool.free, host.pool.total)} free` : "no pool yet"}
              </span>
            </p>
            <p className="text-xs text-ink-3">
              {plural(host.adapters.filter(({ tier }) => tier !== "disk").length, "adapter")} loaded
            </p>
          </li>
        ))}
      </ul>
      {hosts.length > shown.length && (
        <p className="border-t px-4 py-2.5 text-xs text-ink-3">
          The {shown.length} busiest of {number(hosts.length)}.
          {unused > 0 && (
            <>
              {" "}
              <Link
                to="/t/$tenant/hosts"
                params={{ tenant }}
                search={{ use: "unused" }}
                className="underline underline-offset-2 hover:text-ink"
              >
                {unused === 1 ? "1 is" : `${number(unused)} are`} not in use
              </Link>
            </>
          )}
        </p>
      )}
    </Card>
  );
}

/** The adapters that used the most tokens in the last week. */
function MostUsedAdapters() {
  const tenant = useTenant();
  const { data } = useQuery(usageQuery(tenant, 7));
  const rows = (data?.by_adapter ?? []).map((row) => ({
    name: row.adapter,
    tokens: row.prompt_tokens + row.completion_tokens,
  }));
  const top = rows.toSorted((a, b) => b.tokens - a.tokens).slice(0, 5);
  if (!top[0]?.tokens) return null;
  const maximum = top[0].tokens;
  return (
    <Card title="Most used adapters, 7 days">
      <ul className="grid gap-3 px-4 py-3.5">
        {top.map(({ name, tokens }) => (
          <li key={name ?? ""} className="grid grid-cols-[minmax(0,1fr)] gap-1.5">
            <span className="flex justify-between gap-3">
              {name ? (
                <Link
                  to="/t/$tenant/adapters/$name"
                  params={{ tenant, name }}
                  className="truncate font-medium hover:underline"
                >
                  {name}
                </Link>
              ) : (
                <span className="text-ink-2">base model</span>
              )}
              <span className="tnum text-xs whitespace-nowrap text-ink-3">{short(tokens)} tokens</span>
            </span>
            <StackedBar
              total={maximum}
              segments={[{ key: "tokens", label: "", value: tokens, className: "bg-series-1" }]}
              className="h-1!"
            />
          </li>
        ))}
      </ul>
    </Card>
  );
}

function GettingStarted() {
  const tenant = useTenant();
  const { data: models } = useQuery(modelsQuery(tenant));
  const model = models?.find(({ kind }) => kind === "adapter") ?? models?.[0];
  if (!model) return null;
  return (
    <Card
      title={`Call ${model.id} from your code`}
      note="The API is compatible with OpenAI: change the base URL and the key, and keep your code."
      actions={
        <Button size="sm" asChild>
          <Link to="/t/$tenant/keys" params={{ tenant }}>
            <KeyRound /> Create a key
          </Link>
        </Button>
      }
    >
      <div className="p-4">
        <Snippets model={model.id} origin={location.origin} languages={LANGUAGES.slice(0, 3)} />
      </div>
    </Card>
  );
}
