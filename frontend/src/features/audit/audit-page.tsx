import { useNavigate, useSearch } from "@tanstack/react-router";
import { Download, ScrollText } from "lucide-react";
import type { AuditEvent } from "@/api/types";
import { Page } from "@/app/page";
import { useInfiniteQuery } from "@/app/use-query";
import { Badge } from "@/components/badge";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { CodeBlock } from "@/components/code-block";
import { ExpandableRow } from "@/components/expandable-row";
import { type Option, Select } from "@/components/field";
import { Empty, ErrorNotice, SkeletonRows } from "@/components/notices";
import { RelativeTime } from "@/components/relative-time";
import { SearchInput } from "@/components/search-input";
import { useTenant } from "@/features/session/queries";
import { cn } from "@/lib/cn";
import { fullTime } from "@/lib/format";
import { auditQuery, csvAddress, type Scope } from "./queries";
import { type AuditSearch, DAYS, readAuditSearch } from "./search";

const NOUNS: [value: string, label: string][] = [
  ["", "All actions"],
  ["adapter", "Adapters"],
  ["version", "Versions"],
  ["alias", "Aliases and canaries"],
  ["evaluation", "Evaluations"],
  ["evaluation_set", "Evaluation sets"],
  ["upload", "Uploads"],
  ["follow", "Followed repositories"],
  ["hub_models", "Hub models"],
  ["hub_token", "Hub token"],
  ["bucket_credentials", "Bucket credentials"],
  ["prefix", "Pinned prefixes"],
  ["batch", "Batches"],
  ["file", "Files"],
  ["key", "API keys"],
  ["member", "Members"],
  ["invitation", "Invitations"],
  ["webhook", "Webhooks"],
  ["export", "Exports"],
  ["export_schedule", "Scheduled exports"],
  ["slo", "Latency objectives"],
  ["api-settings", "API settings"],
  ["origins", "Allowed origins"],
  ["recording", "Prompts and answers"],
  ["tenant", "Tenant"],
];
const OF_OPERATORS: [value: string, label: string][] = [
  ["session", "Sign-ins"],
  ["user", "Accounts"],
  ["password", "Passwords"],
  ["second-factor", "Second factors"],
  ["identity", "Identities at the provider"],
  ["host", "Hosts"],
  ["join_token", "Join tokens"],
  ["base_model", "Base models"],
  ["prices", "Prices"],
  ["secret", "Secrets"],
];
const SPANS: Record<(typeof DAYS)[number], string> = { 1: "Last 24 hours", 7: "Last 7 days", 30: "Last 30 days" };
const NONE: AuditSearch = { of: undefined, action: undefined, actor: undefined, target: undefined, days: undefined };

export function AuditPage() {
  return (
    <AuditLog
      scope={{ tenant: useTenant() }}
      title="Audit log"
      note="All changes in this tenant, with the person and time of each. Entries cannot be edited or deleted."
    />
  );
}

/** The audit log with its filters. The operator's log has the rows of all tenants and a column for the tenant. */
export function AuditLog({ scope, title, note }: { scope: Scope; title: string; note: string }) {
  const { open, ...filters } = readAuditSearch(useSearch({ strict: false }));
  const navigate = useNavigate();
  // The search parameters belong to the tenant's or to the operator's page.
  const show = (change: AuditSearch) =>
    void navigate({
      to: ".",
      search: ((now: AuditSearch) => ({ ...now, ...change })) as never,
      replace: true,
      resetScroll: false,
    });
  const { data, error, refetch, hasNextPage, fetchNextPage, isFetchingNextPage } = useInfiniteQuery(
    auditQuery(scope, filters),
  );
  const events = data?.pages.flatMap((page) => page.events);
  const filtered = Object.values(filters).some((value) => value !== undefined);
  const all = scope === "everybody";
  const download = (
    <Button asChild>
      <a href={csvAddress(scope, filters)} download>
        <Download /> Download CSV
      </a>
    </Button>
  );
  return (
    <Page title={title} note={note} actions={download}>
      <Filters filters={filters} all={all} onChange={(change) => show({ ...change, open: undefined })} />
      {error && !data && <ErrorNotice error={error} onRetry={refetch} />}
      {(!error || data) && (
        <Card>
          {!events && <SkeletonRows rows={8} />}
          {events?.length === 0 && <Nothing filtered={filtered} onClear={() => show(NONE)} />}
          {events && events.length > 0 && (
            <ul className="divide-y" aria-label="Changes">
              {events.map((event) => (
                <Row
                  key={event.id}
                  event={event}
                  all={all}
                  open={event.id === open}
                  onToggle={() => show({ open: event.id === open ? undefined : event.id })}
                />
              ))}
            </ul>
          )}
          <ErrorNotice error={error} onRetry={fetchNextPage} className="m-4" />
          {hasNextPage && (
            <div className="border-t p-2 text-center">
              <Button size="sm" variant="ghost" busy={isFetchingNextPage} onClick={() => void fetchNextPage()}>
                Older
              </Button>
            </div>
          )}
        </Card>
      )}
    </Page>
  );
}

function Filters({
  filters,
  all,
  onChange,
}: {
  filters: AuditSearch;
  all: boolean;
  onChange: (change: AuditSearch) => void;
}) {
  return (
    <div
      role="search"
      aria-label="Audit log"
      className={cn("mb-3 grid gap-2 sm:grid-cols-2", all ? "lg:grid-cols-5" : "lg:grid-cols-4")}
    >
      {all && (
        <SearchInput label="Tenant" hint="Tenant (- for none)" value={filters.of} onChange={(of) => onChange({ of })} />
      )}
      <Select
        aria-label="What"
        value={filters.action ?? ""}
        onChange={(event) => onChange({ action: event.target.value || undefined })}
        data-testid="audit-action"
        options={[...NOUNS, ...(all ? OF_OPERATORS : [])]}
      />
      <SearchInput
        label="Who"
        hint="Person or API key"
        value={filters.actor}
        onChange={(actor) => onChange({ actor })}
      />
      <SearchInput
        label="Subject"
        hint="Subject (name or ID)"
        value={filters.target}
        onChange={(target) => onChange({ target })}
      />
      <Select
        aria-label="When"
        value={filters.days ?? ""}
        onChange={(event) => onChange({ days: DAYS.find((days) => String(days) === event.target.value) })}
        options={[["", "Any time"], ...DAYS.map((days): Option => [days, SPANS[days]])]}
      />
    </div>
  );
}

function Nothing({ filtered, onClear }: { filtered: boolean; onClear: () => void }) {
  return (
    <Empty
      icon={<ScrollText />}
      title={filtered ? "No matches" : "No changes yet"}
      action={filtered && <Button onClick={onClear}>Clear filters</Button>}
    >
      {filtered ? "No change matches these filters." : "The first change appears here."}
    </Empty>
  );
}

function Row({ event, all, open, onToggle }: { event: AuditEvent; all: boolean; open: boolean; onToggle: () => void }) {
  return (
    <ExpandableRow open={open} onToggle={onToggle} details={<Detail event={event} />}>
      <span className="grid min-w-0 flex-1 gap-0.5 sm:flex sm:flex-2 sm:items-center sm:gap-3">
        <span className="truncate sm:w-36 sm:shrink-0">
          <Badge tone={event.actor.kind === "user" ? "blue" : "neutral"}>{event.action}</Badge>
        </span>
        {all && (
          <span className="hidden w-32 shrink-0 truncate text-ink-2 lg:block">
            {event.tenant ?? <span className="text-ink-3">no tenant</span>}
          </span>
        )}
        <span className="min-w-0 flex-1 truncate font-medium" dir="auto">
          {event.target.label}
        </span>
      </span>
      <span className="hidden min-w-0 flex-1 truncate text-ink-3 sm:block">{event.actor.label}</span>
      <span className="w-24 shrink-0 text-right text-xs whitespace-nowrap text-ink-3">
        <RelativeTime at={event.created_at} />
      </span>
    </ExpandableRow>
  );
}

function Detail({ event }: { event: AuditEvent }) {
  const { kind, id, label } = event.target;
  const rows = [
    ["Tenant", event.tenant ?? "none"],
    ["When", fullTime(event.created_at)],
    ["Who", `${event.actor.label} (${event.actor.kind})`],
    ["Subject", `${kind} ${label === id ? id : `${label} (${id})`}`],
    ["Request", event.request_id || "–"],
  ] as const;
  return (
    <div className="grid gap-3 border-t bg-fill/40 px-4 py-3.5 lg:grid-cols-2">
      <dl className="grid content-start gap-1 text-xs">
        {rows.map(([label, value]) => (
          <div key={label} className="flex gap-3">
            <dt className="w-16 shrink-0 text-ink-3">{label}</dt>
            <dd className="min-w-0 break-all">{value}</dd>
          </div>
        ))}
      </dl>
      {Object.keys(event.detail).length > 0 && (
        <CodeBlock code={JSON.stringify(event.detail, null, 2)} label="Detail" />
      )}
    </div>
  );
}
