import { Link } from "@tanstack/react-router";
import { Wallet } from "lucide-react";
import { useQuery } from "@/app/use-query";
import { useTenant } from "@/features/session/queries";
import { money, percent } from "@/lib/format";
import { budgetsQuery } from "./queries";
import { allBudgets, SPAN_LABELS } from "./spans";

const MAX_ROWS = 3;

/** A notice of budgets that passed a threshold. */
export function BudgetNotice() {
  const tenant = useTenant();
  const { data } = useQuery(budgetsQuery(tenant));
  const passed = data ? allBudgets(data).filter(({ budget }) => budget.reached !== null) : [];
  if (!data || passed.length === 0) return null;
  return (
    <div
      role="note"
      className="flex gap-3 rounded-lg bg-amber-soft px-4 py-3 text-sm text-amber-text"
      data-testid="budget-notice"
    >
      <Wallet className="mt-0.5 size-4 shrink-0" aria-hidden />
      <div className="min-w-0">
        {passed.slice(0, MAX_ROWS).map(({ id, whose, span, budget }) => (
          <p key={id} className="break-words">
            {SPAN_LABELS[span]} {percent(budget.spent_micros, budget.amount_micros)} of a budget is spent:{" "}
            {money(budget.spent_micros, data.currency)} of {money(budget.amount_micros, data.currency)} ({whose}).
          </p>
        ))}
        <Link to="/t/$tenant/limits" params={{ tenant }} className="underline underline-offset-2">
          {passed.length > MAX_ROWS ? `All ${passed.length} under Limits` : "Budgets are under Limits"}
        </Link>
      </div>
    </div>
  );
}
