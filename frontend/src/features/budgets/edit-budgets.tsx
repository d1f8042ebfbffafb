import { zodResolver } from "@hookform/resolvers/zod";
import type { UseMutationResult } from "@tanstack/react-query";
import { useForm } from "react-hook-form";
import type { BudgetReport, BudgetsRequest, BudgetStates } from "@/api/types";
import { FormDialog } from "@/components/dialog";
import { Field, Input, Select } from "@/components/field";
import { toastThen } from "@/components/toast";
import { useTenant } from "@/features/session/queries";
import { z } from "@/lib/zod";
import { useGrantBudgets, useSetBudgets } from "./queries";
import { type BudgetSpan, SPANS } from "./spans";

const AMOUNT = z
  .string()
  .check(
    z.regex(
      /^\s*((?=.*[1-9])\d{1,9}([.,]\d{1,6})?)?\s*$/,
      "Enter an amount above zero, such as 25 or 0.50, or leave the field empty for no budget.",
    ),
  );
const ALERTS = z
  .string()
  .check(z.regex(/^\s*(\d{1,3}\s*%?\s*(,\s*\d{1,3}\s*%?\s*){0,7})?$/, "Enter percentages such as 50, 80, 100."));
const SCHEMA = z.object({
  day: AMOUNT,
  month: AMOUNT,
  day_limit: z.string(),
  month_limit: z.string(),
  day_alerts: ALERTS,
  month_alerts: ALERTS,
});
type Form = z.infer<typeof SCHEMA>;

const LABELS: Record<BudgetSpan, [label: string, hint: string]> = {
  day: ["Per day", "From midnight UTC."],
  month: ["Per month", "From the first day of the month, UTC."],
};

interface Props {
  whose: string;
  currency: string;
  budgets: BudgetStates;
  set: UseMutationResult<BudgetReport, Error, BudgetsRequest>;
  onClose: () => void;
}

export function EditTenantBudgets(props: Omit<Props, "set" | "whose">) {
  return <EditBudgets {...props} whose="this tenant" set={useSetBudgets(useTenant())} />;
}

export function EditKeyBudgets({ id, name, ...props }: Omit<Props, "set" | "whose"> & { id: string; name: string }) {
  return <EditBudgets {...props} whose={name} set={useSetBudgets(useTenant(), id)} />;
}

/** The dialog with the budgets that an operator grants a tenant. */
export function EditGrantedBudgets({ tenant, ...props }: Omit<Props, "set" | "whose"> & { tenant: string }) {
  return <EditBudgets {...props} whose={tenant} set={useGrantBudgets(tenant)} />;
}

function defaults(budgets: BudgetStates): Form {
  const of = (span: BudgetSpan) => budgets[span];
  const amount = (span: BudgetSpan) => (of(span) ? String((of(span)?.amount_micros ?? 0) / 1e6) : "");
  const alerts = (span: BudgetSpan) => (of(span)?.alerts ?? [50, 80, 100]).join(", ");
  return {
    day: amount("day"),
    month: amount("month"),
    day_limit: of("day")?.at_limit ?? "refuse",
    month_limit: of("month")?.at_limit ?? "refuse",
    day_alerts: alerts("day"),
    month_alerts: alerts("month"),
  };
}

function budgetOf(form: Form, span: BudgetSpan): BudgetsRequest["day"] {
  const amount = form[span].trim().replace(",", ".");
  if (amount === "") return null;
  const alerts = form[`${span}_alerts`]
    .split(",")
    .map((each) => Number(each.replace("%", "").trim()))
    .filter((each) => each > 0);
  return {
    amount_micros: Math.round(Number(amount) * 1e6),
    at_limit: form[`${span}_limit`] === "warn" ? "warn" : "refuse",
    alerts,
  };
}

function EditBudgets({ whose, currency, budgets, set, onClose }: Props) {
  const form = useForm<Form>({ resolver: zodResolver(SCHEMA), defaultValues: defaults(budgets) });
  const { errors } = form.formState;
  const submit = form.handleSubmit((values) =>
    set.mutate(
      { day: budgetOf(values, "day"), month: budgetOf(values, "month") },
      toastThen(`Set the budgets of ${whose}`, onClose),
    ),
  );
  return (
    <FormDialog
      onClose={onClose}
      title={`Budgets of ${whose}`}
      description="Leave an amount empty for no budget. The maximum cost of a request is reserved while it runs. Changes take effect within two seconds."
      write={set}
      action="Save"
      testId="budgets-save"
      formClassName="gap-5"
      onSubmit={submit}
    >
      {SPANS.map((span) => (
        <fieldset key={span} className="field-pairs">
          <legend className="sr-only">{LABELS[span][0]}</legend>
          <Field label={`${LABELS[span][0]}, ${currency}`} hint={LABELS[span][1]} error={errors[span]?.message}>
            <Input
              {...form.register(span)}
              inputMode="decimal"
              autoComplete="off"
              placeholder="no budget"
              data-testid={`budget-${span}`}
            />
          </Field>
          <Field label="When used up">
            <Select
              {...form.register(`${span}_limit`)}
              aria-label={`When used up, ${LABELS[span][0].toLowerCase()}`}
              options={[
                ["refuse", "Refuse requests (402)"],
                ["warn", "Notify only"],
              ]}
            />
          </Field>
          <div className="sm:col-span-2">
            <Field
              label="Notify at, % of budget"
              hint="One notification per threshold, by webhook (budget.alert) and in the console."
              error={errors[`${span}_alerts`]?.message}
            >
              <Input
                {...form.register(`${span}_alerts`)}
                aria-label={`Notify at, ${LABELS[span][0].toLowerCase()}`}
                autoComplete="off"
                placeholder="never"
              />
            </Field>
          </div>
        </fieldset>
      ))}
    </FormDialog>
  );
}
