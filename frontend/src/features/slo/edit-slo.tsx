import { zodResolver } from "@hookform/resolvers/zod";
import type { UseMutationResult } from "@tanstack/react-query";
import { useForm } from "react-hook-form";
import { asApiError } from "@/api/errors";
import type { LatencyObjectives, SloReport } from "@/api/types";
import { Button } from "@/components/button";
import { Dialog } from "@/components/dialog";
import { Field, Input, Select } from "@/components/field";
import { ErrorNotice } from "@/components/notices";
import { toast } from "@/components/toast";
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
      {
        onSuccess: () => {
          toast.good("Set the objectives");
          onClose();
        },
      },
    ),
  );
  return (
    <Dialog
      open
      onOpenChange={(open) => !open && onClose()}
      title="Objectives"
      description="Objectives are sent with every request. A host that cannot start a request in time may refuse it early and say when to retry."
    >
      <form onSubmit={submit} noValidate className="grid gap-4">
        {set.error && <ErrorNotice error={asApiError(set.error)} />}
        <Field
          label="Time to first token"
          hint="Milliseconds. Leave empty for no objective."
          error={errors.first_token_ms?.message}
        >
          {(control) => (
            <Input
              {...control}
              {...form.register("first_token_ms")}
              inputMode="numeric"
              autoComplete="off"
              placeholder="500"
              data-testid="slo-first"
            />
          )}
        </Field>
        <Field
          label="Inter-token latency"
          hint="Milliseconds, averaged over a request."
          error={errors.inter_token_ms?.message}
        >
          {(control) => (
            <Input
              {...control}
              {...form.register("inter_token_ms")}
              inputMode="numeric"
              autoComplete="off"
              placeholder="50"
            />
          )}
        </Field>
        <Field label="Target" hint="The rest is the error budget.">
          {(control) => (
            <Select {...control} {...form.register("target")}>
              {targets.map((value) => (
                <option key={value} value={value}>
                  {Number((Number(value) * 100).toFixed(3))}% of requests
                </option>
              ))}
            </Select>
          )}
        </Field>
        <div className="flex justify-end gap-2">
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" variant="primary" busy={set.isPending} data-testid="slo-save">
            Save
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
