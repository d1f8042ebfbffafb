import { getRouteApi, Link } from "@tanstack/react-router";
import { Building2, Plus } from "lucide-react";
import { Suspense } from "react";
import type { TenantRow, TenantState } from "@/api/types";
import { Page } from "@/app/page";
import { useQuery } from "@/app/use-query";
import { Badge, type Tone } from "@/components/badge";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { type Option, Select } from "@/components/field";
import { Empty, ErrorNotice, SkeletonRows } from "@/components/notices";
import { Pager } from "@/components/pager";
import { SearchInput } from "@/components/search-input";
import { Table, Td, Tr } from "@/components/table";
import { useTenant } from "@/features/session/queries";
import { number, short } from "@/lib/format";
import { lazyPart } from "@/lib/lazy-part";
import { PAGE, tenantsQuery } from "./queries";
import { TENANT_SORTS, TENANT_STATES, type TenantsSearch } from "./search";

const CreateTenant = lazyPart(() => import("./create-tenant"), "CreateTenant");

const route = getRouteApi("/t/$tenant/operator/tenants");

const STATE_TONES: Record<TenantState, Tone> = { active: "green", suspended: "amber", deleted: "neutral" };
const SORT_LABELS: Record<(typeof TENANT_SORTS)[number], string> = {
  name: "By name",
  "-created_at": "Newest first",
  "-weight": "Largest weight",
  "-requests": "Most requests",
};

export function TenantsPage() {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const { data, error, refetch } = useQuery(tenantsQuery(search));
  const show = (change: TenantsSearch) =>
    void navigate({
      search: (now) => ({ ...now, page: undefined, ...change }),
      replace: true,
      resetScroll: change.page !== search.page,
    });
  const creating = search.create ?? false;
  const setCreating = (open: boolean) => show({ create: open || undefined, page: search.page });
  const create = (
    <Button variant="primary" onClick={() => setCreating(true)} data-testid="create-tenant">
      <Plus /> Create tenant
    </Button>
  );
  return (
    <Page title="Tenants" note="All tenants of this installation, including those without requests." actions={create}>
      <div role="search" aria-label="Tenants" className="mb-3 grid gap-2 sm:grid-cols-[minmax(0,1fr)_11rem_11rem]">
        <SearchInput label="Search tenants" value={search.q} onChange={(q) => show({ q })} />
        <Select
          aria-label="State"
          value={search.state ?? ""}
          onChange={(event) => show({ state: (event.target.value || undefined) as TenantsSearch["state"] })}
          options={[
            ["", "Not deleted"],
            ...TENANT_STATES.map((state): Option => [state, state.charAt(0).toUpperCase() + state.slice(1)]),
          ]}
        />
        <Select
          aria-label="Order"
          value={search.sort ?? "name"}
          onChange={(event) => show({ sort: event.target.value as TenantsSearch["sort"] })}
          options={TENANT_SORTS.map((sort): Option => [sort, SORT_LABELS[sort]])}
        />
      </div>
      <ErrorNotice error={error} onRetry={refetch} />
      {!error && (
        <Card>
          {!data && <SkeletonRows rows={8} />}
          {data && data.total === 0 && (
            <Empty icon={<Building2 />} title="No matches">
              No tenant matches this search.
            </Empty>
          )}
          {data && data.total > 0 && <Tenants rows={data.results} />}
          {data && <Pager page={search.page} size={PAGE} total={data.total} onPage={(page) => show({ page })} />}
        </Card>
      )}
      <Suspense>{creating && <CreateTenant onClose={() => setCreating(false)} />}</Suspense>
    </Page>
  );
}

export function TenantStateBadge({ state }: { state: TenantState }) {
  return (
    <Badge tone={STATE_TONES[state]} className="capitalize">
      {state}
    </Badge>
  );
}

function Tenants({ rows }: { rows: TenantRow[] }) {
  const tenant = useTenant();
  return (
    <Table
      label="Tenants"
      columns={[
        "Tenant",
        "State",
        ["Requests, 30 days", "text-right"],
        ["Failed", "hidden text-right lg:table-cell"],
        ["Refused", "hidden text-right lg:table-cell"],
        ["Tokens", "hidden text-right md:table-cell"],
        ["Adapters", "hidden text-right xl:table-cell"],
        ["Members", "hidden text-right xl:table-cell"],
        ["Keys", "hidden text-right xl:table-cell"],
        ["Weight", "hidden text-right md:table-cell"],
      ]}
    >
      {rows.map((row) => (
        <Tr key={row.slug}>
          <Td>
            <Link
              to="/t/$tenant/operator/tenants/$slug"
              params={{ tenant, slug: row.slug }}
              className="block max-w-40 truncate font-medium hover:underline sm:max-w-52 lg:max-w-72"
              title={row.name}
              dir="auto"
            >
              {row.name}
            </Link>
            <span className="block max-w-40 truncate text-xs text-ink-3 sm:max-w-52 lg:max-w-72">{row.slug}</span>
          </Td>
          <Td>
            <TenantStateBadge state={row.state} />
          </Td>
          <Td className="tnum text-right">{number(row.usage.requests)}</Td>
          <Td className="tnum hidden text-right lg:table-cell">{number(row.usage.failed)}</Td>
          <Td className="tnum hidden text-right lg:table-cell">{number(row.usage.refused)}</Td>
          <Td className="tnum hidden text-right md:table-cell">{short(row.usage.tokens)}</Td>
          <Td className="tnum hidden text-right xl:table-cell">{number(row.adapters)}</Td>
          <Td className="tnum hidden text-right xl:table-cell">{number(row.members)}</Td>
          <Td className="tnum hidden text-right xl:table-cell">{number(row.keys)}</Td>
          <Td className="tnum hidden text-right md:table-cell">{row.weight}</Td>
        </Tr>
      ))}
    </Table>
  );
}
