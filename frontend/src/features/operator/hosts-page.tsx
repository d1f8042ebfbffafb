import { getRouteApi } from "@tanstack/react-router";
import { HardDriveDownload } from "lucide-react";
import { Suspense, useState } from "react";
import type { HostService, OperatorHost, StagingRow } from "@/api/types";
import { Page } from "@/app/page";
import { useQuery } from "@/app/use-query";
import { Badge } from "@/components/badge";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { Confirm } from "@/components/dialog";
import { type Option, Select } from "@/components/field";
import { Empty, ErrorNotice, SkeletonRows } from "@/components/notices";
import { Pager } from "@/components/pager";
import { type Tab, Tabs } from "@/components/tabs";
import { RelativeTime } from "@/components/relative-time";
import { SearchInput } from "@/components/search-input";
import { toast } from "@/components/toast";
import { PHASE_TONES } from "@/features/adapters/version-status";
import { HostStatus, isHeard, isUsed } from "@/features/hosts/host-status";
import { bytes, eta, fullTime, number, percent, plural, rate } from "@/lib/format";
import { lazyPart } from "@/lib/lazy-part";
import { AddHost, Joined, OpenTokens, RevokeDialog } from "./join-hosts";
import { allHostsQuery, PAGE, stagingQuery, useRetryStaging, useSetHostService } from "./queries";
import { MAX_HOSTS_IN_FULL, HostSelect } from "./host-select";
import { RestartDialog, RestartProgress, useRestartToast } from "./restart-host";
import { type HostTab, PHASES, type StagingSearch } from "./search";

const BaseModels = lazyPart(() => import("./base-models"), "BaseModels");
const FairShares = lazyPart(() => import("./fairness"), "FairShares");
const HostLoad = lazyPart(() => import("./host-load"), "HostLoad");
const PageOwnersSection = lazyPart(() => import("@/features/hosts/page-owners"), "PageOwnersSection");

const route = getRouteApi("/t/$tenant/operator/hosts");

const TABS: Tab<HostTab>[] = [
  { name: "hosts", label: "Hosts", content: <Hosts /> },
  { name: "staging", label: "Staging", content: <Staging /> },
  {
    name: "load",
    label: "Load and memory",
    content: (
      <>
        <HostLoad />
        <Memory />
      </>
    ),
  },
  { name: "fairness", label: "Fair shares", content: <FairShares /> },
  { name: "models", label: "Base models", content: <BaseModels /> },
];

export function OperatorHostsPage() {
  const { tab = "hosts" } = route.useSearch();
  const navigate = route.useNavigate();
  const show = (next: HostTab) =>
    void navigate({
      search: (now) => ({ ...now, tab: next === "hosts" ? undefined : next }),
      replace: true,
      resetScroll: false,
    });
  return (
    <Page
      title="Hosts & staging"
      note="Manage engine hosts, and see their load and the adapters that are being staged."
    >
      <Tabs label="Sections" value={tab} tabs={TABS} onChange={show} />
    </Page>
  );
}

function Memory() {
  const { data, error, refetch } = useQuery(allHostsQuery);
  const { map } = route.useSearch();
  const navigate = route.useNavigate();
  const show = (host: string | undefined) =>
    void navigate({ search: (now) => ({ ...now, map: host }), replace: true, resetScroll: false });
  const names = (data ?? []).map(({ name }) => name);
  const many = names.length > MAX_HOSTS_IN_FULL;
  return (
    <Card
      aria-label="Memory"
      title="Memory"
      note="The tenants and adapters that fill a host’s page pool."
      actions={
        many && (
          <HostSelect
            label="Host whose memory is shown"
            names={names}
            value={map ?? ""}
            none="No host"
            onChange={show}
          />
        )
      }
    >
      <ErrorNotice error={error} onRetry={refetch} className="m-4" />
      {!error && !data && <SkeletonRows rows={1} />}
      {data?.length === 0 && <p className="px-4 py-6 text-sm text-ink-3">No host has reported its memory yet.</p>}
      <Suspense>
        {(many ? names.filter((name) => name === map) : names).map((name) => (
          <PageOwnersSection
            key={name}
            host={name}
            allTenants
            open={map === name}
            onOpen={(open) => show(open ? name : undefined)}
          />
        ))}
      </Suspense>
    </Card>
  );
}

interface Change {
  host: OperatorHost;
  service: HostService;
}

function Hosts() {
  const { data, error, refetch } = useQuery(allHostsQuery);
  const [change, setChange] = useState<Change | null>(null);
  const [restarted, setRestarted] = useState<string | null>(null);
  const { add: adding = false } = route.useSearch();
  const navigate = route.useNavigate();
  const setAdding = (open: boolean) =>
    void navigate({ search: (now) => ({ ...now, add: open || undefined }), replace: true, resetScroll: false });
  const [revoking, setRevoking] = useState<string | null>(null);
  const revoked = data?.find(({ name }) => name === revoking);
  const restarting = data?.find(({ name }) => name === restarted);
  const beside = (host: OperatorHost) =>
    (data ?? []).filter((one) => one.name !== host.name && one.base_digest === host.base_digest);
  const severalBases = new Set((data ?? []).map((host) => host.base_digest).filter(Boolean)).size > 1;
  useRestartToast(data);
  return (
    <Card
      aria-label="Hosts"
      title="Hosts"
      note="A cordoned host receives no new requests or adapters. A drained host can be stopped when it has no running or waiting requests."
      actions={
        <Button size="sm" onClick={() => setAdding(true)}>
          Add host
        </Button>
      }
    >
      <ErrorNotice error={error} onRetry={refetch} className="m-4" />
      {!error && !data && <SkeletonRows rows={2} />}
      {data?.length === 0 && (
        <p className="px-4 py-8 text-center text-sm text-ink-3">
          No engine hosts. Add a host, or list one in LORIKEET_ENGINE_HOSTS.
        </p>
      )}
      {data && data.length > 0 && (
        <ul className="divide-y">
          {data.map((host) => (
            <HostRow
              key={host.name}
              host={host}
              severalBases={severalBases}
              onChange={(service) => setChange({ host, service })}
              onRestart={() => setRestarted(host.name)}
              onRevoke={() => setRevoking(host.name)}
            />
          ))}
        </ul>
      )}
      <OpenTokens />
      {adding && <AddHost onClose={() => setAdding(false)} />}
      {revoked && <RevokeDialog host={revoked} others={beside(revoked)} onClose={() => setRevoking(null)} />}
      {change && <ConfirmService {...change} others={beside(change.host)} onClose={() => setChange(null)} />}
      {restarting && <RestartDialog host={restarting} others={beside(restarting)} onClose={() => setRestarted(null)} />}
    </Card>
  );
}

/** Maximum characters of a base model's name beside a host's. */
const MAX_MODEL_LENGTH = 40;

interface HostRowProps {
  host: OperatorHost;
  /** True if the hosts have different base models. */
  severalBases: boolean;
  onChange: (service: HostService) => void;
  onRestart: () => void;
  onRevoke: () => void;
}

function HostRow({ host, severalBases, onChange, onRestart, onRevoke }: HostRowProps) {
  const idle = host.running + host.waiting === 0;
  const revoked = Boolean(host.joined?.revoked_at);
  return (
    <li className="flex flex-wrap items-center gap-x-4 gap-y-2 px-4 py-2.5 text-sm" aria-label={`Host ${host.name}`}>
      <span className="flex min-w-0 flex-1 basis-72 flex-wrap items-center gap-2">
        <span className="font-medium break-all">{host.name}</span>
        <HostStatus host={host} />
        <span className="tnum text-xs text-ink-3">
          {severalBases && host.model && (
            <>
              <bdi title={host.model}>
                {host.model.length > MAX_MODEL_LENGTH ? `${host.model.slice(0, MAX_MODEL_LENGTH)}…` : host.model}
              </bdi>
              ,{" "}
            </>
          )}
          {host.zone && (
            <>
              zone <bdi className="break-all">{host.zone}</bdi>,{" "}
            </>
          )}
          {isHeard(host) ? (
            <>
              {number(host.running)} running, {number(host.waiting)} waiting, {plural(host.adapters_total, "adapter")}
            </>
          ) : (
            <>
              last heard <RelativeTime at={host.last_seen} />, with {plural(host.adapters_total, "adapter")}
            </>
          )}
          {isHeard(host) && host.experts && host.experts.total > 0 && (
            <>, {percent(host.experts.resident, host.experts.total)} of experts in the pool</>
          )}
          {host.only_here > 0 && `, ${number(host.only_here)} only here`}
          {clockText(host.clock_ahead_s)}
          {host.engine_version && `, version ${host.engine_version}`}
          {isHeard(host) && host.adapter_readers > 0 && `, gives adapters to ${plural(host.adapter_readers, "host")}`}
        </span>
        {host.service === "drained" && idle && <Badge tone="green">can be stopped</Badge>}
      </span>
      <span className="flex flex-wrap gap-2">
        {!revoked && host.service !== "serving" && (
          <Button size="sm" onClick={() => onChange("serving")}>
            Resume service
          </Button>
        )}
        {!revoked && host.service === "serving" && (
          <Button size="sm" onClick={() => onChange("cordoned")}>
            Cordon
          </Button>
        )}
        {(host.state === "online" || host.state === "draining") && (
          <Button size="sm" onClick={onRestart}>
            Restart
          </Button>
        )}
        {!revoked && host.service !== "drained" && (
          <Button size="sm" variant="danger" onClick={() => onChange("drained")}>
            Drain
          </Button>
        )}
        {host.joined && (
          <Button size="sm" variant="danger" onClick={onRevoke}>
            {revoked ? "Remove" : "Revoke"}
          </Button>
        )}
      </span>
      <Joined host={host} />
      {revoked && <p className="basis-full text-xs text-ink-2">{host.quarantine?.fix}</p>}
      <ClockSkew host={host} />
      <LastEnd host={host} />
      <RestartProgress host={host} />
    </li>
  );
}

/** Seconds by which a host's clock may differ before a note says so. */
const MAX_CLOCK_DIFFERENCE_S = 1;
/** Seconds of a difference that is not worth a number. */
const CLOCK_IN_STEP_S = 0.1;

function clockText(ahead: number | null | undefined): string {
  if (ahead === null || ahead === undefined || Math.abs(ahead) > MAX_CLOCK_DIFFERENCE_S) return "";
  return Math.abs(ahead) < CLOCK_IN_STEP_S ? ", clock in step" : `, clock ${clockDifference(ahead)}`;
}

function clockDifference(ahead: number): string {
  const seconds = Math.abs(ahead);
  return `${seconds < 120 ? `${seconds.toFixed(1)} s` : `${number(Math.round(seconds / 60))} min`} ${ahead > 0 ? "ahead" : "behind"}`;
}

/** A note that a host's clock is wrong. */
function ClockSkew({ host: { clock_ahead_s: ahead } }: { host: OperatorHost }) {
  if (ahead === null || ahead === undefined || Math.abs(ahead) <= MAX_CLOCK_DIFFERENCE_S) return null;
  return (
    <p role="note" className="basis-full text-xs text-ink-2">
      Its clock is {clockDifference(ahead)} {ahead > 0 && "of "}the database’s. Synchronise the machine with NTP.
    </p>
  );
}

/** The reason why the previous engine process ended, if it was not requested. */
function LastEnd({ host: { last_end: end } }: { host: OperatorHost }) {
  if (!end) return null;
  return (
    <p role="note" className="basis-full text-xs break-words text-ink-2">
      The engine was restarted because the previous one ended unexpectedly
      {end.at && (
        <>
          {" "}
          (<RelativeTime at={end.at} />)
        </>
      )}
      : {end.reason}.
    </p>
  );
}

const TITLES: Record<HostService, (name: string) => string> = {
  serving: (name) => `Resume service of ${name}?`,
  cordoned: (name) => `Cordon ${name}?`,
  drained: (name) => `Drain ${name}?`,
};
const CONSEQUENCES: Record<HostService, string> = {
  serving: "It receives requests again within a second, and adapters uploaded in the meantime are staged there.",
  cordoned: "It receives no new requests and no new adapters. Running requests continue, and loaded adapters stay.",
  drained:
    "It receives nothing new, and its engine refuses new work, even after a restart. When its running requests have ended, you can stop it.",
};
const ACTIONS: Record<HostService, string> = { serving: "Resume service", cordoned: "Cordon", drained: "Drain" };

function ConfirmService({ host, service, others, onClose }: Change & { others: OperatorHost[]; onClose: () => void }) {
  const set = useSetHostService();
  const takes = service !== "serving";
  const last = takes && !others.some(isUsed);
  const confirm = () =>
    set.mutate(
      { host: host.name, service },
      {
        onSuccess: () => {
          toast.good(takes ? `${host.name} receives no new requests` : `${host.name} serves requests again`);
          onClose();
        },
      },
    );
  return (
    <Confirm
      onClose={onClose}
      title={TITLES[service](host.name)}
      description={CONSEQUENCES[service]}
      action={ACTIONS[service]}
      harmless={service === "serving"}
      write={set}
      onConfirm={confirm}
    >
      {last && (
        <p className="mt-2 text-sm font-medium text-danger-text">
          No other host serves its base model: every new request for it will be refused with 503.
        </p>
      )}
      {takes && !last && host.only_here > 0 && (
        <p className="mt-2 text-sm font-medium text-danger-text">
          {plural(host.only_here, "adapter version")} that are on no other host cannot be called until then.
        </p>
      )}
    </Confirm>
  );
}

function Staging() {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const hosts = useQuery(allHostsQuery);
  const { data, error, refetch } = useQuery(stagingQuery(search));
  const show = (change: StagingSearch) =>
    void navigate({
      search: (now) => ({ ...now, page: undefined, ...change }),
      replace: true,
      resetScroll: change.page !== search.page,
    });
  const counts = data && PHASES.map((phase) => `${number(data.phases[phase] ?? 0)} ${phase}`).join(", ");
  return (
    <Card aria-label="Staging" title="Staging" note={counts ?? "Versions that are being staged on hosts"}>
      <div
        role="search"
        aria-label="Staging"
        className="grid gap-2 border-b px-4 py-3 sm:grid-cols-[minmax(0,1fr)_10rem_10rem]"
      >
        <SearchInput label="Search by adapter or tenant" value={search.q} onChange={(q) => show({ q })} />
        <Select
          aria-label="Phase"
          value={search.phase ?? ""}
          onChange={(event) => show({ phase: (event.target.value || undefined) as StagingSearch["phase"] })}
          options={[["", "Not ready"], ...PHASES]}
        />
        <Select
          aria-label="Host"
          value={search.host ?? ""}
          onChange={(event) => show({ host: event.target.value || undefined })}
          options={[["", "All hosts"], ...(hosts.data?.map(({ name }): Option => [name, name]) ?? [])]}
        />
      </div>
      <ErrorNotice error={error} onRetry={refetch} className="m-4" />
      {!error && !data && <SkeletonRows rows={3} />}
      {data?.total === 0 && (
        <Empty icon={<HardDriveDownload />} title="Nothing is being staged">
          {search.q || search.phase || search.host
            ? "No placement matches these filters."
            : "All versions are ready on their hosts."}
        </Empty>
      )}
      {data && data.total > 0 && (
        <ul className="divide-y" aria-label="Placements">
          {data.results.map((row) => (
            <Row key={row.id} row={row} />
          ))}
        </ul>
      )}
      {data && <Pager page={search.page} size={PAGE} total={data.total} onPage={(page) => show({ page })} />}
    </Card>
  );
}

function waiting(row: StagingRow) {
  if (row.waits_for === "host_offline") return "Waiting for the host, which is offline.";
  if (row.waits_for === "host_cordoned") return "Waiting for the host, which is cordoned.";
  if (row.waits_for === "slot") return "Queued.";
  if (row.waits_for === "retry" && row.next_attempt_at) return `Next attempt at ${fullTime(row.next_attempt_at)}.`;
  return row.phase === "ready" ? null : "A worker is processing it.";
}

const speed = ({ bytes_per_second, remaining_s }: StagingRow) =>
  remaining_s === null ? "" : ` at ${rate(bytes_per_second)}, ${eta(remaining_s)}`;

function Row({ row }: { row: StagingRow }) {
  const retry = useRetryStaging();
  const again = () => retry.mutate(row.id, { onSuccess: () => toast.good("Retry started"), onError: toast.bad });
  const idle = row.phase === "failed" || row.waits_for === "retry";
  return (
    <li className="flex flex-wrap items-start gap-x-4 gap-y-2 px-4 py-2.5 text-sm">
      <div className="min-w-0 flex-1 basis-64">
        <p className="flex flex-wrap items-center gap-x-2 gap-y-1">
          <span className="font-medium break-all">
            {row.adapter}@v{row.version}
          </span>
          <Badge tone={PHASE_TONES[row.phase]}>{row.phase}</Badge>
          <span className="text-xs break-all text-ink-3">
            of {row.tenant} on {row.host}
          </span>
        </p>
        <p className="text-xs text-ink-3">
          {row.bytes_total > 0 &&
            `${bytes(row.bytes_done)} of ${bytes(row.bytes_total)} (${percent(row.bytes_done, row.bytes_total)})${speed(row)}. `}
          {row.attempts > 0 && `${plural(row.attempts, "attempt")}. `}
          {row.failures > 0 && `${plural(row.failures, "failure")} in a row. `}
          {waiting(row)}
        </p>
        {row.error && (
          <p className="mt-0.5 text-xs break-words text-danger-text">
            {row.error.message} <span className="text-ink-2">{row.error.fix}</span>
          </p>
        )}
      </div>
      <span className="flex items-center gap-3 text-xs text-ink-3">
        <RelativeTime at={row.updated_at} />
        {idle && (
          <Button
            size="sm"
            busy={retry.isPending}
            onClick={again}
            aria-label={`Retry now: ${row.adapter}@v${row.version} on ${row.host}`}
          >
            Retry now
          </Button>
        )}
      </span>
    </li>
  );
}
