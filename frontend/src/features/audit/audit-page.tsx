import { useInfiniteQuery } from "@tanstack/react-query";
import { ChevronRight, Download, ScrollText } from "lucide-react";
import { useDeferredValue, useState } from "react";
import { asApiError } from "@/api/errors";
import type { AuditEvent } from "@/api/types";
import { Page } from "@/app/page";
import { Badge } from "@/components/badge";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { CodeBlock } from "@/components/code-block";
import { Input, Select } from "@/components/field";
import { Empty, ErrorNotice, SkeletonRows } from "@/components/notices";
import { RelativeTime } from "@/components/relative-time";
import { useTenant } from "@/features/session/queries";
import { cn } from "@/lib/cn";
import { fullTime } from "@/lib/format";
import { type AuditFilters, auditQuery, csvAddress, type Scope } from "./queries";

const NOUNS: [value: string, label: string][] = [
  ["", "All actions"],
  ["adapter", "Adapters"],
  ["version", "Versions"],
  ["upload", "Uploads"],
  ["key", "API keys"],
  ["member", "Members"],
  ["invitation", "Invitations"],
  ["webhook", "Webhooks"],
  ["export", "Exports"],
  ["recording", "Prompts and answers"],
  ["tenant", "Tenant"],
];
const OF_OPERATORS: [value: string, label: string][] = [
  ["session", "Sign-ins"],
  ["user", "Accounts"],
  ["password", "Passwords"],
  ["prices", "Prices"],
];
const SPANS: [days: number, label: string][] = [
  [0, "Any time"],
  [1, "Last 24 hours"],
  [7, "Last 7 days"],
  [30, "Last 30 days"],
];
const NONE: AuditFilters = { tenant: "", action: "", actor: "", target: "", days: 0 };

export function AuditPage() {
  return (
    <AuditLog scope={{ tenant: useTenant() }} title="Audit log" note="Every change in this tenant: who, what, when. Nothing here can be edited or removed." />
  );
}

/** The log with its filters; an operator's has everybody's rows and says whose each is. */
export function AuditLog({ scope, title, note }: { scope: Scope; title: string; note: string }) {
  const [filters, setFilters] = useState(NONE);
  const asked = useDeferredValue(filters);
  const { data, error, refetch, hasNextPage, fetchNextPage, isFetchingNextPage } = useInfiniteQuery(auditQuery(scope, asked));
  const events = data?.pages.flatMap((page) => page.events);
  const filtered = Object.entries(filters).some(([name, value]) => value !== NONE[name as keyof AuditFilters]);
  const all = scope === "everybody";
  const download = (
    <Button asChild>
      <a href={csvAddress(scope, asked)} download>
        <Download /> Download CSV
      </a>
    </Button>
  );
  return (
    <Page title={title} note={note} actions={download}>
      <Filters filters={filters} all={all} onChange={setFilters} />
      {error && <ErrorNotice error={asApiError(error)} onRetry={() => void refetch()} />}
      {!error && (
        <Card>
          {!events && <SkeletonRows rows={8} />}
          {events?.length === 0 && <Nothing filtered={filtered} onClear={() => setFilters(NONE)} />}
          {events && events.length > 0 && (
            <ul className="divide-y" aria-label="Changes">
              {events.map((event) => (
                <Row key={event.id} event={event} all={all} />
              ))}
            </ul>
          )}
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

function Filters({ filters, all, onChange }: { filters: AuditFilters; all: boolean; onChange: (filters: AuditFilters) => void }) {
  const set = (change: Partial<AuditFilters>) => onChange({ ...filters, ...change });
  return (
    <div role="search" aria-label="Audit log" className={cn("mb-3 grid gap-2 sm:grid-cols-2", all ? "lg:grid-cols-5" : "lg:grid-cols-4")}>
      {all && (
        <Input
          aria-label="Tenant"
          placeholder="Tenant, or - for none"
          value={filters.tenant}
          onChange={(event) => set({ tenant: event.target.value.trim() })}
          data-testid="audit-tenant"
        />
      )}
      <Select aria-label="What" value={filters.action} onChange={(event) => set({ action: event.target.value })} data-testid="audit-action">
        {[...NOUNS, ...(all ? OF_OPERATORS : [])].map(([value, label]) => (
          <option key={value} value={value}>
            {label}
          </option>
        ))}
      </Select>
      <Input aria-label="Who" placeholder="Who: an address or key" value={filters.actor} onChange={(event) => set({ actor: event.target.value })} />
      <Input aria-label="Subject" placeholder="Subject: a name or id" value={filters.target} onChange={(event) => set({ target: event.target.value })} />
      <Select aria-label="When" value={filters.days} onChange={(event) => set({ days: Number(event.target.value) })}>
        {SPANS.map(([days, label]) => (
          <option key={days} value={days}>
            {label}
          </option>
        ))}
      </Select>
    </div>
  );
}

function Nothing({ filtered, onClear }: { filtered: boolean; onClear: () => void }) {
  return (
    <Empty icon={<ScrollText />} title={filtered ? "Nothing matches" : "Nothing has happened yet"} action={filtered && <Button onClick={onClear}>Clear filters</Button>}>
      {filtered ? "No change fits these filters." : "The first change appears here."}
    </Empty>
  );
}

function Row({ event, all }: { event: AuditEvent; all: boolean }) {
  const [open, setOpen] = useState(false);
  return (
    <li>
      <button
        type="button"
        aria-expanded={open}
        onClick={() => setOpen(!open)}
        className="flex min-h-row w-full items-center gap-3 px-4 py-1 text-left text-sm hover:bg-fill/60"
      >
        <ChevronRight className={cn("size-3.5 shrink-0 text-ink-3 transition-transform", open && "rotate-90")} aria-hidden />
        <span className="grid min-w-0 flex-1 gap-0.5 sm:flex sm:flex-2 sm:items-center sm:gap-3">
          <span className="truncate sm:w-36 sm:shrink-0">
            <Badge tone={event.actor.kind === "user" ? "blue" : "neutral"}>{event.action}</Badge>
          </span>
          {all && <span className="hidden w-32 shrink-0 truncate text-ink-2 md:block">{event.tenant ?? <span className="text-ink-3">no tenant</span>}</span>}
          <span className="min-w-0 flex-1 truncate font-medium" dir="auto">
            {event.target.label}
          </span>
        </span>
        <span className="hidden min-w-0 flex-1 truncate text-ink-3 sm:block">{event.actor.label}</span>
        <span className="w-24 shrink-0 text-right text-xs whitespace-nowrap text-ink-3">
          <RelativeTime at={event.created_at} />
        </span>
      </button>
      {open && <Detail event={event} />}
    </li>
  );
}

function Detail({ event }: { event: AuditEvent }) {
  const rows = [
    ["Tenant", event.tenant ?? "none"],
    ["When", fullTime(event.created_at)],
    ["Who", `${event.actor.label} (${event.actor.kind})`],
    ["Subject", `${event.target.kind} ${event.target.id}`],
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
      {Object.keys(event.detail).length > 0 && <CodeBlock code={JSON.stringify(event.detail, null, 2)} label="Detail" />}
    </div>
  );
}
