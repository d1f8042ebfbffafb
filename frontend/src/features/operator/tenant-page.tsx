import { getRouteApi, Link, useParams } from "@tanstack/react-router";
import { type FormEvent, type ReactNode, Suspense, useState } from "react";
import type { BudgetReport, BudgetState, TenantDetail, TenantLimits } from "@/api/types";
import { Page } from "@/app/page";
import { useQuery } from "@/app/use-query";
import { Badge } from "@/components/badge";
import { Button } from "@/components/button";
import { Card, Stat, Stats } from "@/components/card";
import { FormDialog } from "@/components/dialog";
import { Field, Input } from "@/components/field";
import { ErrorNotice, Skeleton, SkeletonRows } from "@/components/notices";
import { Pager } from "@/components/pager";
import { RelativeTime } from "@/components/relative-time";
import { SearchInput } from "@/components/search-input";
import { HiddenTh, Table, Td, Tr } from "@/components/table";
import { toastThen } from "@/components/toast";
import { grantedBudgetsQuery } from "@/features/budgets/queries";
import { rolesWithin } from "@/features/members/roles";
import { useTenant } from "@/features/session/queries";
import { bytes, money, number, plural, short } from "@/lib/format";
import { lazyPart } from "@/lib/lazy-part";
import {
  grantedLimitsQuery,
  SHORT_PAGE,
  tenantAdaptersQuery,
  tenantMembersQuery,
  tenantQuery,
  tenantStatementQuery,
  useTenantActions,
} from "./queries";
import { ResetSecondFactor } from "./reset-second-factor";
import type { TenantSearch } from "./search";
import { TenantLife } from "./tenant-life";
import { TenantStateBadge } from "./tenants-page";
import { UnlinkIdentity } from "./unlink-identity";

// Forms are loaded on demand, because no other part of the page needs their libraries.
const Invite = lazyPart(() => import("@/features/members/invite"), "Invite");
const EditTenantLimits = lazyPart(() => import("@/features/limits/edit-limits"), "EditTenantLimits");
const EditGrantedBudgets = lazyPart(() => import("@/features/budgets/edit-budgets"), "EditGrantedBudgets");
const EditObjectives = lazyPart(() => import("@/features/slo/edit-slo"), "EditObjectives");

const route = getRouteApi("/t/$tenant/operator/tenants/$slug");

/** Returns the search parameters of the lists and a function that changes them. */
function useLists() {
  const navigate = route.useNavigate();
  const show = (change: TenantSearch) =>
    void navigate({ search: (now) => ({ ...now, ...change }), replace: true, resetScroll: false });
  return [route.useSearch(), show] as const;
}

/** A tenant as operators see it. The visit is recorded in the tenant's audit log. */
export function TenantPage() {
  const slug = useParams({ strict: false, select: (params) => params.slug ?? "" });
  const { data, error, refetch } = useQuery(tenantQuery(slug));
  const heading = data && (
    <>
      <span className="min-w-0 break-words" dir="auto">
        {data.name}
      </span>
      <TenantStateBadge state={data.state} />
    </>
  );
  return (
    <Page
      title={data?.name ?? slug}
      heading={heading}
      note={`${slug} · Your visit is recorded in its audit log, once per hour.`}
      actions={<Back />}
    >
      <ErrorNotice error={error} onRetry={refetch} />
      {!error && !data && <Skeleton className="h-96 w-full" />}
      {data && <Detail tenant={data} />}
    </Page>
  );
}

function Back() {
  const tenant = useTenant();
  return (
    <Button asChild>
      <Link to="/t/$tenant/operator/tenants" params={{ tenant }}>
        Back to tenants
      </Link>
    </Button>
  );
}

function Detail({ tenant }: { tenant: TenantDetail }) {
  const { usage } = tenant;
  const bad = [`${number(usage.failed)} failed`, `${number(usage.refused)} refused`].join(", ");
  return (
    <div className="grid gap-5">
      {tenant.state !== "active" && (
        <p role="note" className="rounded-lg bg-amber-soft px-4 py-3 text-sm break-words text-amber-text">
          {tenant.state === "deleted" ? "Deleted" : "Suspended"}{" "}
          <RelativeTime at={tenant.deleted_at ?? tenant.suspended_at} />
          {tenant.suspended_for && `: ${tenant.suspended_for}`}
        </p>
      )}
      <Stats>
        <Stat label={`Requests, ${usage.days} days`} value={short(usage.requests)} note={bad} />
        <Stat label="Tokens" value={short(usage.tokens)} note={`${usage.days} days`} />
        <Stat label="Adapters" value={number(tenant.adapters)} note={versions(tenant)} />
        <Stat label="This month" value={<Cost slug={tenant.slug} />} note="tokens and storage, so far" />
      </Stats>
      <Decisions tenant={tenant} />
      <People tenant={tenant} />
      <Adapters slug={tenant.slug} />
      {tenant.state !== "deleted" && <TenantLife tenant={tenant} />}
    </div>
  );
}

const versions = ({ versions: states }: TenantDetail) =>
  Object.entries(states)
    .map(([state, count]) => `${number(count)} ${state}`)
    .join(", ") || "no versions";

function Cost({ slug }: { slug: string }) {
  const { data, error } = useQuery(tenantStatementQuery(slug));
  if (error) return <span title={error.message}>–</span>;
  return data ? money(data.total_micros, data.currency) : "…";
}

/**
 * The settings that operators make for a tenant: weight, limits, budgets and objectives. Prices are the same for all.
 */
function Decisions({ tenant }: { tenant: TenantDetail }) {
  const [editing, setEditing] = useState<"weight" | "limits" | "budgets" | "objectives" | null>(null);
  const limits = useQuery(grantedLimitsQuery(tenant.slug));
  const budgets = useQuery(grantedBudgetsQuery(tenant.slug));
  const { objectives: setObjectives } = useTenantActions(tenant.slug);
  const currentTenant = useTenant();
  const close = () => setEditing(null);
  const { first_token_ms: first, inter_token_ms: inter, target } = tenant.objectives;
  const fixed = tenant.state === "deleted";
  const objectives = [first && `first token ${first} ms`, inter && `between tokens ${inter} ms`]
    .filter(Boolean)
    .join(", ");
  return (
    <Card
      aria-label="Operator settings"
      title="Operator settings"
      note="Changes take effect within two seconds and do not affect running requests."
    >
      <dl className="divide-y">
        <Decision label="Weight" onEdit={fixed ? undefined : () => setEditing("weight")}>
          {tenant.weight} <span className="text-ink-3">· its share of full hosts, relative to other tenants</span>
        </Decision>
        <Decision label="Limits" onEdit={fixed || !limits.data ? undefined : () => setEditing("limits")}>
          {limits.error ? (
            <span className="text-danger-text">{limits.error.message}</span>
          ) : limits.data ? (
            granted(limits.data)
          ) : (
            "…"
          )}
        </Decision>
        <Decision label="Budgets" onEdit={fixed || !budgets.data?.currency ? undefined : () => setEditing("budgets")}>
          {budgets.error ? (
            <span className="text-danger-text">{budgets.error.message}</span>
          ) : budgets.data ? (
            budgeted(budgets.data)
          ) : (
            "…"
          )}
        </Decision>
        <Decision label="Objectives" onEdit={fixed ? undefined : () => setEditing("objectives")}>
          {objectives ? `${objectives}, for ${Number(((target ?? 0.99) * 100).toFixed(3))}% of requests` : "None"}
        </Decision>
        <Decision label="Prices">
          Same for all tenants:{" "}
          <Link to="/t/$tenant/operator" params={{ tenant: currentTenant }} className="underline">
            price list
          </Link>
        </Decision>
      </dl>
      {editing === "weight" && <EditWeight tenant={tenant} onClose={close} />}
      <Suspense>
        {editing === "limits" && limits.data && (
          <EditTenantLimits tenant={tenant.slug} limits={limits.data} onClose={close} />
        )}
        {editing === "budgets" && budgets.data?.currency && (
          <EditGrantedBudgets
            tenant={tenant.slug}
            currency={budgets.data.currency}
            budgets={budgets.data.granted}
            onClose={close}
          />
        )}
        {editing === "objectives" && (
          <EditObjectives
            slo={{ first_token_ms: first ?? null, inter_token_ms: inter ?? null, target: target ?? 0.99 }}
            set={setObjectives}
            onClose={close}
          />
        )}
      </Suspense>
    </Card>
  );
}

function Decision({ label, children, onEdit }: { label: string; children: ReactNode; onEdit?: () => void }) {
  return (
    <div className="flex flex-wrap items-center gap-x-4 gap-y-1 px-4 py-2.5 text-sm">
      <dt className="w-24 shrink-0 text-ink-3">{label}</dt>
      <dd className="flex min-w-0 flex-1 items-center gap-4">
        <span className="min-w-0 flex-1 break-words">{children}</span>
        {onEdit && (
          <Button size="sm" onClick={onEdit} aria-label={`Change ${label.toLowerCase()}`}>
            Change
          </Button>
        )}
      </dd>
    </div>
  );
}

const LABELS: [keyof TenantLimits, string][] = [
  ["requests_per_minute", "requests a minute"],
  ["tokens_per_minute", "tokens a minute"],
  ["tokens_per_day", "tokens a day"],
  ["tokens_per_month", "tokens a month"],
  ["concurrency", "concurrent choices"],
  ["max_output_tokens", "output tokens"],
  ["adapters", "adapters"],
  ["storage_bytes", "stored"],
  ["max_rank", "highest rank"],
  ["pinned_bytes", "pinned"],
];

function budgeted({ granted: { day, month }, currency }: BudgetReport): string {
  if (currency === null) return "None (budgets need a price list)";
  const of = (budget: BudgetState | null, span: string) =>
    budget && `${money(budget.amount_micros, currency)} a ${span} (${money(budget.spent_micros, currency)} spent)`;
  return [of(day, "day"), of(month, "month")].filter(Boolean).join(", ") || "None";
}

function granted(limits: TenantLimits): string {
  const set = LABELS.filter(([name]) => limits[name] != null).map(
    ([name, label]) => `${(name.endsWith("_bytes") ? bytes : short)(Number(limits[name]))} ${label}`,
  );
  return set.join(", ") || "None";
}

function EditWeight({ tenant, onClose }: { tenant: TenantDetail; onClose: () => void }) {
  const { weight } = useTenantActions(tenant.slug);
  const [value, setValue] = useState(String(tenant.weight));
  const valid = Number(value) >= 0.01 && Number(value) <= 1000;
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (!valid) return;
    weight.mutate({ weight: Number(value) }, toastThen(`Set the weight of ${tenant.name}`, onClose));
  };
  return (
    <FormDialog
      onClose={onClose}
      title={`Weight of ${tenant.name}`}
      description="A tenant with twice the weight of another receives twice the service while hosts are full."
      write={weight}
      action="Save"
      disabled={!valid}
      testId="weight-save"
      onSubmit={submit}
    >
      <Field label="Weight" hint="The default is 1." error={valid ? undefined : "Enter a number from 0.01 to 1000."}>
        <Input
          value={value}
          onChange={(event) => setValue(event.target.value)}
          inputMode="decimal"
          autoComplete="off"
          data-testid="weight"
        />
      </Field>
    </FormDialog>
  );
}

/** Number of open invitations that are shown, the newest first. */
const MAX_INVITATIONS = 5;

function People({ tenant }: { tenant: TenantDetail }) {
  const [inviting, setInviting] = useState(false);
  const invite = tenant.state !== "deleted" && (
    <Button size="sm" onClick={() => setInviting(true)} data-testid="tenant-invite">
      Invite
    </Button>
  );
  const [{ member: search = "", members: page = 0 }, show] = useLists();
  const { data, error, refetch } = useQuery(tenantMembersQuery(tenant.slug, search, page));
  // Invitations are shown on the first page of the unfiltered list.
  const invitations = search || page > 0 ? [] : tenant.invitations.slice(0, MAX_INVITATIONS);
  return (
    <Card
      title="Members"
      note={`${plural(tenant.members, "member")}, ${plural(tenant.invitation_count, "open invitation")}`}
      actions={invite}
    >
      {(tenant.members > SHORT_PAGE || search) && (
        <SearchInput
          landmark="Members"
          className="border-b px-4 py-3"
          label="Search by name or e-mail"
          value={search}
          onChange={(member) => show({ member, members: undefined })}
        />
      )}
      <ErrorNotice error={error} onRetry={refetch} className="m-4" />
      {!error && !data && <SkeletonRows rows={3} />}
      {data && data.total + invitations.length === 0 && (
        <p className="px-4 py-8 text-center text-sm text-ink-3">
          {search ? "No member matches this search." : "This tenant has no members."}
        </p>
      )}
      {data && data.total + invitations.length > 0 && (
        <Table label="Members" columns={["Person", "Role", ["Since", "text-right"], <HiddenTh label="Actions" />]}>
          {data.results.map((person) => (
            <Tr key={person.id}>
              <Td className="max-w-72 truncate">
                <bdi className="font-medium">{person.name || person.email}</bdi>{" "}
                {person.name && <span className="text-ink-3">{person.email}</span>}
              </Td>
              <Td className="capitalize">{person.role}</Td>
              <Td className="text-right text-ink-3">
                <RelativeTime at={person.joined_at} />
              </Td>
              <Td className="py-0 text-right">
                {person.identities.map((identity) => (
                  <UnlinkIdentity key={identity.id} tenant={tenant.slug} person={person} identity={identity} />
                ))}
                {person.second_factor && <ResetSecondFactor tenant={tenant.slug} person={person} />}
              </Td>
            </Tr>
          ))}
          {invitations.map((invitation) => (
            <Tr key={invitation.id}>
              <Td className="max-w-72 truncate">
                {invitation.email} <Badge tone="blue">invited</Badge>
              </Td>
              <Td className="capitalize">{invitation.role}</Td>
              <Td className="text-right text-ink-3">
                <RelativeTime at={invitation.created_at} />
              </Td>
              <Td />
            </Tr>
          ))}
        </Table>
      )}
      {invitations.length < tenant.invitation_count && invitations.length > 0 && (
        <p className="border-t px-4 py-2.5 text-xs text-ink-3">
          and {plural(tenant.invitation_count - invitations.length, "older invitation")}
        </p>
      )}
      {data && (
        <Pager
          label="Pages of members"
          page={page}
          size={SHORT_PAGE}
          total={data.total}
          onPage={(members) => show({ members })}
        />
      )}
      <Suspense>{inviting && <InviteInto tenant={tenant} onClose={() => setInviting(false)} />}</Suspense>
    </Card>
  );
}

function InviteInto({ tenant, onClose }: { tenant: TenantDetail; onClose: () => void }) {
  const { invite } = useTenantActions(tenant.slug);
  const title = `Invite a person to ${tenant.name}`;
  return <Invite title={title} invite={invite} roles={rolesWithin("owner")} defaultRole="owner" onClose={onClose} />;
}

function Adapters({ slug }: { slug: string }) {
  const [{ adapter: search = "", adapters: page = 0 }, show] = useLists();
  const { data, error, refetch } = useQuery(tenantAdaptersQuery(slug, search, page));
  return (
    <Card
      title="Adapters"
      note="Adapters with their newest version. Their content is not accessible to operators."
      actions={
        <SearchInput
          label="Search adapters"
          value={search}
          onChange={(adapter) => show({ adapter, adapters: undefined })}
        />
      }
    >
      <ErrorNotice error={error} onRetry={refetch} className="m-4" />
      {!error && !data && <SkeletonRows rows={3} />}
      {data?.total === 0 && (
        <p className="px-4 py-8 text-center text-sm text-ink-3">
          {search ? "No adapter matches this search." : "This tenant has no adapters."}
        </p>
      )}
      {data && data.total > 0 && (
        <Table
          label="Adapters"
          columns={["Adapter", "Newest", ["Rank", "text-right"], ["Size", "text-right"], ["Created", "text-right"]]}
        >
          {data.results.map((row) => (
            <Tr key={row.name}>
              <Td className="max-w-72 truncate font-medium">{row.name}</Td>
              <Td>
                {row.version === null ? (
                  <span className="text-ink-3">none yet</span>
                ) : (
                  `v${row.version}, ${row.state ?? ""}`
                )}
              </Td>
              <Td className="tnum text-right">{row.rank ?? "–"}</Td>
              <Td className="tnum text-right">{bytes(row.bytes)}</Td>
              <Td className="text-right text-ink-3">
                <RelativeTime at={row.created_at} />
              </Td>
            </Tr>
          ))}
        </Table>
      )}
      {data && (
        <Pager
          label="Pages of adapters"
          page={page}
          size={SHORT_PAGE}
          total={data.total}
          onPage={(adapters) => show({ adapters })}
        />
      )}
    </Card>
  );
}
