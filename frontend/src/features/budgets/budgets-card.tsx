import { Suspense, useState } from "react";
import type { BudgetReport } from "@/api/types";
import { useQuery } from "@/app/use-query";
import { Progress } from "@/components/bars";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { Dialog } from "@/components/dialog";
import { ErrorNotice, SkeletonRows } from "@/components/notices";
import { useCan, useTenant } from "@/features/session/queries";
import { money, number, percent } from "@/lib/format";
import { lazyPart } from "@/lib/lazy-part";
import { budgetsQuery, keyBudgetsQuery } from "./queries";
import { allBudgets, SPAN_LABELS, type ShownBudget } from "./spans";

// The form is loaded on demand with its libraries.
const EditKeyBudgets = lazyPart(() => import("./edit-budgets"), "EditKeyBudgets");
const EditTenantBudgets = lazyPart(() => import("./edit-budgets"), "EditTenantBudgets");

/** Returns whether the person may set budgets here and the installation has prices. */
export function useMayBudget(): boolean {
  const { data } = useQuery(budgetsQuery(useTenant()));
  return useCan("budgets.write") && data?.currency != null;
}

/** The budgets of the tenant and its keys, and the amounts spent. */
export function BudgetsCard() {
  const { data, error, refetch } = useQuery(budgetsQuery(useTenant()));
  const [editing, setEditing] = useState(false);
  const edit = useMayBudget() && (
    <Button size="sm" onClick={() => setEditing(true)} data-testid="budgets-edit">
      Edit tenant budgets
    </Button>
  );
  return (
    <Card
      title="Budgets"
      note="Spending limits at the prices of this installation. Budgets of keys are set below."
      actions={edit}
    >
      <ErrorNotice error={error} onRetry={refetch} className="m-4" />
      {!error && !data && <SkeletonRows rows={2} />}
      {data && <Budgets report={data} />}
      <Suspense>
        {data?.currency != null && editing && (
          <EditTenantBudgets currency={data.currency} budgets={data.own} onClose={() => setEditing(false)} />
        )}
      </Suspense>
    </Card>
  );
}

/** The dialog with the budgets of one key. */
export function KeyBudgets({ id, name, onClose }: { id: string; name: string; onClose: () => void }) {
  const tenant = useTenant();
  const currency = useQuery(budgetsQuery(tenant)).data?.currency;
  const { data, error } = useQuery(keyBudgetsQuery(tenant, id));
  if (error)
    return (
      <Dialog onClose={onClose} title={`Budgets of ${name}`} done>
        <ErrorNotice error={error} />
      </Dialog>
    );
  if (currency == null || !data) return null;
  return (
    <Suspense>
      <EditKeyBudgets id={id} name={name} currency={currency} budgets={data} onClose={onClose} />
    </Suspense>
  );
}

function Budgets({ report }: { report: BudgetReport }) {
  const shown = allBudgets(report);
  if (report.currency === null)
    return (
      <p className="px-4 py-4 text-sm text-ink-3">The operator has not published prices, so budgets cannot be used.</p>
    );
  if (shown.length === 0)
    return <p className="px-4 py-4 text-sm text-ink-3">No budgets set. Usage shows what was spent.</p>;
  return (
    <ul className="divide-y" aria-label="Budgets" data-testid="budgets">
      {shown.map((each) => (
        <BudgetRow key={each.id} {...each} currency={report.currency} />
      ))}
      {report.keys_total > report.keys.length && (
        <li className="px-4 py-3 text-xs text-ink-3">
          Of {number(report.keys_total)} keys with a budget, the {report.keys.length} with the least left.
        </li>
      )}
    </ul>
  );
}

function BudgetRow({ whose, span, budget, currency }: ShownBudget & { currency: string | null }) {
  const { spent_micros: spent, amount_micros: amount, at_limit: atLimit } = budget;
  const full = spent >= amount;
  return (
    <li className="grid items-center gap-x-6 gap-y-1.5 px-4 py-3 text-sm sm:grid-cols-[minmax(0,1fr)_minmax(0,16rem)]">
      <div className="min-w-0">
        <p className="font-medium break-words" dir="auto">
          {whose}
        </p>
        <p className={full ? "text-xs text-danger-text" : "text-xs text-ink-3"}>{consequence(full, atLimit)}</p>
      </div>
      <div className="grid gap-1.5">
        <p className="tnum flex flex-wrap justify-between gap-x-3">
          <span>
            {money(spent, currency)} <span className="text-ink-3">of {money(amount, currency)}</span>
          </span>
          <span className="text-ink-3">{SPAN_LABELS[span]}</span>
        </p>
        <Progress
          label={`${whose}, ${SPAN_LABELS[span].toLowerCase()}: ${percent(spent, amount)} spent`}
          value={spent}
          max={amount}
          tone={budget.reached !== null && budget.reached >= 80 ? "danger" : "accent"}
        />
      </div>
    </li>
  );
}

function consequence(full: boolean, atLimit: "warn" | "refuse"): string {
  if (atLimit === "warn") return full ? "used up: notifies only" : "notifies when used up";
  return full ? "used up: refuses further requests" : "refuses requests that exceed it";
}
