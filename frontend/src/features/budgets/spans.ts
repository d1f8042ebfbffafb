import type { BudgetReport, BudgetState, BudgetStates } from "@/api/types";

export const SPANS = ["day", "month"] as const;
export type BudgetSpan = (typeof SPANS)[number];

export const SPAN_LABELS: Record<BudgetSpan, string> = { day: "Today", month: "This month" };

export interface ShownBudget {
  id: string;
  whose: string;
  span: BudgetSpan;
  budget: BudgetState;
}

/** Returns every budget of a report, the tenant's first. */
export function allBudgets({ granted, own: tenant, keys }: BudgetReport): ShownBudget[] {
  const of = (id: string, whose: string, states: BudgetStates): ShownBudget[] =>
    SPANS.flatMap((span) => {
      const budget = states[span];
      return budget ? [{ id: `${id}-${span}`, whose, span, budget }] : [];
    });
  return [
    ...of("granted", "Tenant, granted by the operator", granted),
    ...of("own", "Tenant, set by its admins", tenant),
    ...keys.flatMap((key) => of(key.id, `Key ${key.name}`, key)),
  ];
}
