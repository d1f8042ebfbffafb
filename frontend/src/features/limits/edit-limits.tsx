import { zodResolver } from "@hookform/resolvers/zod";
import type { UseMutationResult } from "@tanstack/react-query";
import { useForm } from "react-hook-form";
import type { KeyLimits, KeyUsageAgainstLimits, TenantLimits } from "@/api/types";
import { FormDialog } from "@/components/dialog";
import { Field, Input } from "@/components/field";
import { toastThen } from "@/components/toast";
import { useTenant } from "@/features/session/queries";
import { parseBytes, typedBytes } from "@/lib/format";
import { z } from "@/lib/zod";
import { useSetKeyLimits, useSetTenantLimits } from "./queries";

const WHOLE = z
  .string()
  .check(z.regex(/^\s*\d{0,15}\s*$/, "Enter a whole number, or leave the field empty for no limit."));
const SIZE = z
  .string()
  .check(
    z.refine(
      (text) => text.trim() === "" || parseBytes(text) !== null,
      "Enter a size such as 10 GiB or 500 MB, or leave the field empty for no limit.",
    ),
  );
const BYTES = ["storage_bytes", "pinned_bytes"];
const isBytes = (name: string) => BYTES.includes(name);
type Form = Record<string, string>;
type FieldOf<Limits> = [name: keyof Limits & string, label: string, hint: string];

const OF_REQUESTS: FieldOf<KeyLimits>[] = [
  ["requests_per_minute", "Requests per minute", "Within any 60 seconds."],
  ["tokens_per_minute", "Tokens per minute", "Prompt and output."],
  ["tokens_per_day", "Tokens per day", "From midnight UTC."],
  ["tokens_per_month", "Tokens per month", "From the first day of the month, UTC."],
  ["concurrency", "Concurrent choices", "Choices that run at the same time: n per prompt of a request."],
  ["max_output_tokens", "Output of a request", "Tokens per choice."],
];
const OF_TENANT: FieldOf<TenantLimits>[] = [
  ...OF_REQUESTS,
  ["adapters", "Adapters", "Archived adapters do not count."],
  ["storage_bytes", "Storage", "Size of versions that are not archived, such as 10 GiB or 500 MB."],
  ["max_rank", "Rank", "Highest rank of any module of an adapter."],
  [
    "pinned_bytes",
    "Pinned memory",
    "Device memory per host for pinned adapters and prefixes. Leave empty to allow none.",
  ],
];

const schemaOf = (names: string[]) =>
  z.object(Object.fromEntries(names.map((name) => [name, isBytes(name) ? SIZE : WHOLE])));

function toText(name: string, value: number | null | undefined): string {
  if (value == null) return "";
  return isBytes(name) ? typedBytes(value) : String(value);
}

function toNumber(name: string, value: string): number | null {
  if (value.trim() === "") return null;
  return isBytes(name) ? parseBytes(value) : Number(value);
}

export function EditKeyLimits({ apiKey, onClose }: { apiKey: KeyUsageAgainstLimits; onClose: () => void }) {
  const set = useSetKeyLimits(useTenant(), apiKey.id);
  return <EditLimits whose={apiKey.name} fields={OF_REQUESTS} limits={apiKey.limits} set={set} onClose={onClose} />;
}

/** The dialog with the limits that an operator grants a tenant. */
export function EditTenantLimits({
  tenant,
  limits,
  onClose,
}: {
  tenant: string;
  limits: TenantLimits;
  onClose: () => void;
}) {
  return (
    <EditLimits whose={tenant} fields={OF_TENANT} limits={limits} set={useSetTenantLimits(tenant)} onClose={onClose} />
  );
}

interface Props<Limits> {
  whose: string;
  fields: FieldOf<Limits>[];
  limits: Limits;
  set: UseMutationResult<unknown, Error, Limits>;
  onClose: () => void;
}

function EditLimits<Limits extends KeyLimits>({ whose, fields, limits, set, onClose }: Props<Limits>) {
  const form = useForm<Form>({
    resolver: zodResolver(schemaOf(fields.map(([name]) => name))),
    defaultValues: Object.fromEntries(fields.map(([name]) => [name, toText(name, limits[name] as number | null)])),
  });
  const submit = form.handleSubmit((values) =>
    set.mutate(
      Object.fromEntries(fields.map(([name]) => [name, toNumber(name, values[name] ?? "")])) as Limits,
      toastThen(`Set the limits of ${whose}`, onClose),
    ),
  );
  return (
    <FormDialog
      onClose={onClose}
      title={`Limits of ${whose}`}
      description="Leave a field empty for no limit. Changes take effect within two seconds and do not affect running requests."
      write={set}
      action="Save"
      testId="limits-save"
      onSubmit={submit}
    >
      <div className="field-pairs">
        {fields.map(([name, label, hint]) => (
          <Field key={name} label={label} hint={hint} error={form.formState.errors[name]?.message}>
            <Input
              {...form.register(name)}
              inputMode={isBytes(name) ? "text" : "numeric"}
              autoComplete="off"
              placeholder={name === "pinned_bytes" ? "none" : "no limit"}
              data-testid={`limit-${name}`}
            />
          </Field>
        ))}
      </div>
    </FormDialog>
  );
}
