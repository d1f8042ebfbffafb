import { getRouteApi } from "@tanstack/react-router";
import { KeyRound } from "lucide-react";
import { Suspense, useState } from "react";
import { ApiError } from "@/api/errors";
import type { KeyUsageAgainstLimits, UsageAgainstLimits } from "@/api/types";
import { Page } from "@/app/page";
import { useQuery } from "@/app/use-query";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { Empty, ErrorNotice, Skeleton } from "@/components/notices";
import { Pager } from "@/components/pager";
import { SearchInput } from "@/components/search-input";
import { HiddenTh, Table, Td, Tr, type Column } from "@/components/table";
import { BudgetsCard, KeyBudgets, useMayBudget } from "@/features/budgets/budgets-card";
import { useCan, useSession, useTenant } from "@/features/session/queries";
import { bytes, short } from "@/lib/format";
import { lazyPart } from "@/lib/lazy-part";
import { type LimitName, LimitMeter } from "./limit-meter";
import { LIMITS_PAGE, limitsQuery } from "./queries";
import { type KeysSearch } from "./search";

const EditKeyLimits = lazyPart(() => import("./edit-limits"), "EditKeyLimits");
const EditTenantLimits = lazyPart(() => import("./edit-limits"), "EditTenantLimits");

const route = getRouteApi("/t/$tenant/limits");

const COUNTERS_AWAY = new ApiError(
  {
    code: "limits_unavailable",
    message:
      "The usage counters are unreachable, so current usage is unknown. Requests from callers with limits are refused.",
    fix: "Ask the operator to check Redis. Daily and monthly figures below come from the ledger.",
  },
  503,
);

export function LimitsPage() {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const show = (change: KeysSearch) =>
    void navigate({ search: (now) => ({ ...now, page: undefined, ...change }), replace: true, resetScroll: false });
  const { data, error, refetch } = useQuery(limitsQuery(useTenant(), search.q ?? "", search.page ?? 0));
  return (
    <Page
      title="Limits"
      note="Limits of this tenant and its API keys, with current usage. A request must be within both."
    >
      <div className="grid gap-5">
        <ErrorNotice error={error} onRetry={refetch} />
        {!error && !data && <Skeleton className="h-96 w-full" />}
        {data && !data.counters_reachable && <ErrorNotice error={COUNTERS_AWAY} onRetry={refetch} />}
        {data && <TenantLimits tenant={data.tenant} />}
        {data && <BudgetsCard />}
        {data && <KeyLimitsCard keys={data.keys} total={data.keyCount} search={search} show={show} />}
      </div>
    </Page>
  );
}

const TENANT_METERS: LimitName[] = [
  "requests_per_minute",
  "tokens_per_minute",
  "concurrency",
  "tokens_per_day",
  "tokens_per_month",
  "adapters",
  "storage_bytes",
];

function TenantLimits({ tenant }: { tenant: UsageAgainstLimits["tenant"] }) {
  const { max_output_tokens: output, max_rank: rank, pinned_bytes: pinned } = tenant.limits;
  const [editing, setEditing] = useState(false);
  const { user } = useSession();
  const slug = useTenant();
  const edit = user?.is_operator && (
    <Button size="sm" onClick={() => setEditing(true)} data-testid="tenant-limits-edit">
      Edit as operator
    </Button>
  );
  return (
    <Card title="Tenant limits" note="Granted by the operator of this installation" actions={edit}>
      <dl className="grid gap-px bg-line sm:grid-cols-2 xl:grid-cols-4" data-testid="tenant-limits">
        {TENANT_METERS.map((name) => (
          <LimitMeter key={name} name={name} used={tenant.used[name]} allowed={tenant.limits[name] ?? null} />
        ))}
        <div className="grid content-start gap-1.5 bg-surface px-4 py-3.5">
          <dt className="text-xs text-ink-3">Per request</dt>
          <dd className="text-sm">
            {output == null ? "Output up to the model's context" : `At most ${short(output)} tokens of output`}
          </dd>
          <dd className="text-sm">
            {rank == null ? "Adapters of any rank that the model takes" : `Adapters up to rank ${rank}`}
          </dd>
        </div>
        <div className="col-span-full grid content-start gap-1.5 bg-surface px-4 py-3.5">
          <dt className="text-xs text-ink-3">Pinned adapters and prefixes</dt>
          <dd className="text-sm">
            {pinned ? `Up to ${bytes(pinned)} of each host’s device memory` : "Pinning is not allowed"}
          </dd>
        </div>
      </dl>
      <Suspense>
        {editing && <EditTenantLimits tenant={slug} limits={tenant.limits} onClose={() => setEditing(false)} />}
      </Suspense>
    </Card>
  );
}

const COLUMNS: [name: Exclude<LimitName, "adapters" | "storage_bytes">, title: string][] = [
  ["requests_per_minute", "Requests / min"],
  ["tokens_per_minute", "Tokens / min"],
  ["tokens_per_day", "Tokens today"],
  ["tokens_per_month", "Tokens this month"],
  ["concurrency", "Concurrency"],
];

interface KeyLimitsProps {
  keys: KeyUsageAgainstLimits[];
  total: number;
  search: KeysSearch;
  show: (change: KeysSearch) => void;
}

function KeyLimitsCard({ keys, total, search, show }: KeyLimitsProps) {
  const [editing, setEditing] = useState<KeyUsageAgainstLimits | null>(null);
  const [budgeting, setBudgeting] = useState<KeyUsageAgainstLimits | null>(null);
  const may = useCan("keys.write");
  const mayBudget = useMayBudget();
  return (
    <Card title="By key" note="Set by members. The tenant's limits also apply.">
      {(total > LIMITS_PAGE || search.q) && (
        <SearchInput
          landmark="Keys"
          className="border-b px-4 py-3 sm:max-w-96"
          label="Search by name or key prefix"
          value={search.q}
          onChange={(q) => show({ q })}
        />
      )}
      {total === 0 && search.q ? (
        <Empty icon={<KeyRound />} title="No matches">
          No active key matches this search.
        </Empty>
      ) : total === 0 ? (
        <Empty icon={<KeyRound />} title="No keys to limit">
          Create a key under API keys, then set its limits here.
        </Empty>
      ) : (
        <Table
          label="Limits by key"
          columns={[
            "Key",
            ...COLUMNS.map(([, title]): Column => [title, "text-right"]),
            ["Output", "text-right"],
            <HiddenTh label="Actions" className="sticky right-0" />,
          ]}
        >
          {keys.map((key) => (
            <Tr key={key.id}>
              <Td>
                <span className="block max-w-36 truncate font-medium sm:max-w-56" dir="auto" title={key.name}>
                  {key.name}
                </span>
                <span className="block font-mono text-xs text-ink-3">lk_{key.prefix}_…</span>
              </Td>
              {COLUMNS.map(([name]) => (
                <Td key={name} className="tnum text-right">
                  <Of used={key.used[name]} allowed={key.limits[name] ?? null} />
                </Td>
              ))}
              <Td className="tnum text-right">
                {key.limits.max_output_tokens == null ? <None /> : short(key.limits.max_output_tokens)}
              </Td>
              {/* It stays in view while the figures scroll beneath it on a phone. */}
              <Td className="sticky right-0 bg-surface px-2 text-right">
                {mayBudget && (
                  <Button
                    size="sm"
                    variant="ghost"
                    aria-label={`Budget of ${key.name}`}
                    onClick={() => setBudgeting(key)}
                  >
                    Budget
                  </Button>
                )}
                {may && (
                  <Button
                    size="sm"
                    variant="ghost"
                    aria-label={`Edit limits of ${key.name}`}
                    onClick={() => setEditing(key)}
                  >
                    Edit
                  </Button>
                )}
              </Td>
            </Tr>
          ))}
        </Table>
      )}
      <Pager
        label="Pages of keys"
        page={search.page}
        size={LIMITS_PAGE}
        total={total}
        onPage={(page) => show({ page })}
      />
      {budgeting && <KeyBudgets id={budgeting.id} name={budgeting.name} onClose={() => setBudgeting(null)} />}
      <Suspense>{editing && <EditKeyLimits apiKey={editing} onClose={() => setEditing(null)} />}</Suspense>
    </Card>
  );
}

const None = () => <span className="text-ink-3">no limit</span>;

function Of({ used, allowed }: { used: number | null; allowed: number | null }) {
  if (allowed === null) return used ? <span>{short(used)}</span> : <None />;
  return (
    <span className={used !== null && used >= allowed ? "text-danger-text" : undefined}>
      {used === null ? "–" : short(used)} <span className="text-ink-3">of {short(allowed)}</span>
    </span>
  );
}
