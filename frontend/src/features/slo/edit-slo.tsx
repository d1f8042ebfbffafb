import { zodResolver } from "@hookform/resolvers/zod";
import type { UseMutationResult } from "@tanstack/react-query";
import { useForm } from "react-hook-form";
import type { LatencyObjectives, SloReport } from "@/api/types";
import { FormDialog } from "@/components/dialog";
import { Field, Input, type Option, Select } from "@/components/field";
import { toastThen } from "@/components/toast";
import { useTenant } from "@/features/session/queries";
import { z } from "@/lib/zod";
import { useSetSlo } from "./queries";

const MS = z
  .string()
  .check(
    z.regex(
      /^\s*([1-9]\d{0,5})?\s*$/,
      "Enter milliseconds from 1 to 600000, or leave the field empty for no objective.",
    ),
  );
const SCHEMA = z.object({ first_token_ms: MS, inter_token_ms: MS, target: z.string() });
type Form = z.infer<typeof SCHEMA>;

const TARGETS = ["0.9", "0.95", "0.99", "0.995", "0.999"];
const toNumber = (value: string) => (value.trim() === "" ? null : Number(value));

export function EditSlo({ slo, onClose }: { slo: SloReport; onClose: () => void }) {
  return <EditObjectives slo={slo} set={useSetSlo(useTenant())} onClose={onClose} />;
}

interface Props {
  slo: Pick<SloReport, "first_token_ms" | "inter_token_ms" | "target">;
  set: UseMutationResult<unknown, Error, LatencyObjectives>;
  onClose: () => void;
}

export function EditObjectives({ slo, set, onClose }: Props) {
  const targets = [...new Set([...TARGETS, String(slo.target)])].sort();
  const form = useForm<Form>({
    resolver: zodResolver(SCHEMA),
    defaultValues: {
      first_token_ms: String(slo.first_token_ms ?? ""),
      inter_token_ms: String(slo.inter_token_ms ?? ""),
      target: String(slo.target),
    },
  });
  const { errors } = form.formState;
  const submit = form.handleSubmit((values) =>
    set.mutate(
      {
        first_token_ms: toNumber(values.first_token_ms),
        inter_token_ms: toNumber(values.inter_token_ms),
        target: Number(values.target),
      },
      toastThen("Set the objectives", onClose),
    ),
  );
  return (
    <FormDialog
      onClose={onClose}
      title="Objectives"
      description="Objectives are sent with every request. A host that cannot start a request in time may refuse it early and say when to retry."
      write={set}
      action="Save"
      testId="slo-save"
      onSubmit={submit}
    >
      <Field
        label="Time to first token"
        hint="Milliseconds. Leave empty for no objective."
        error={errors.first_token_ms?.message}
      >
        <Input
          {...form.register("first_token_ms")}
          inputMode="numeric"
          autoComplete="off"
          placeholder="500"
          data-testid="slo-first"
        />
      </Field>
      <Field
        label="Inter-token latency"
        hint="Milliseconds, averaged over a request."
        error={errors.inter_token_ms?.message}
      >
        <Input {...form.register("inter_token_ms")} inputMode="numeric" autoComplete="off" placeholder="50" />
      </Field>
      <Field label="Target" hint="The rest is the error budget.">
        <Select
          {...form.register("target")}
          options={targets.map((value): Option => [value, `${Number((Number(value) * 100).toFixed(3))}% of requests`])}
        />
      </Field>
    </FormDialog>
  );
}
