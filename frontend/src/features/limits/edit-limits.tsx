import { zodResolver } from "@hookform/resolvers/zod";
import { useForm } from "react-hook-form";
import { asApiError } from "@/api/errors";
import type { KeyLimits, KeyStanding } from "@/api/types";
import { Button } from "@/components/button";
import { Dialog } from "@/components/dialog";
import { Field, Input } from "@/components/field";
import { ErrorNotice } from "@/components/notices";
import { toast } from "@/components/toast";
import { useTenant } from "@/features/session/queries";
import { z } from "@/lib/zod";
import { useSetKeyLimits } from "./queries";

const WHOLE = z.string().check(z.regex(/^\s*\d{0,15}\s*$/, "A whole number, or nothing for no limit."));
const SCHEMA = z.object({
  requests_per_minute: WHOLE,
  tokens_per_minute: WHOLE,
  tokens_per_day: WHOLE,
  tokens_per_month: WHOLE,
  concurrency: WHOLE,
  max_output_tokens: WHOLE,
});
type Form = z.infer<typeof SCHEMA>;

const FIELDS: [name: keyof Form, label: string, hint: string][] = [
  ["requests_per_minute", "Requests per minute", "Within any 60 seconds."],
  ["tokens_per_minute", "Tokens per minute", "Prompt and output."],
  ["tokens_per_day", "Tokens per day", "From midnight UTC."],
  ["tokens_per_month", "Tokens per month", "From the first, UTC."],
  ["concurrency", "Requests at once", "That run at the same time."],
  ["max_output_tokens", "Output of a request", "Tokens, for each choice."],
];

const toText = (value: number | null | undefined) => (value == null ? "" : String(value));
const toNumber = (value: string) => (value.trim() === "" ? null : Number(value));

export function EditLimits({ apiKey, onClose }: { apiKey: KeyStanding; onClose: () => void }) {
  const set = useSetKeyLimits(useTenant());
  const start = Object.fromEntries(FIELDS.map(([name]) => [name, toText(apiKey.limits[name])])) as Form;
  const form = useForm<Form>({ resolver: zodResolver(SCHEMA), defaultValues: start });
  const submit = form.handleSubmit((values) => {
    const body = Object.fromEntries(FIELDS.map(([name]) => [name, toNumber(values[name])])) as KeyLimits;
    set.mutate(
      { id: apiKey.id, body },
      {
        onSuccess: () => {
          toast.good(`Set the limits of ${apiKey.name}`);
          onClose();
        },
      },
    );
  });
  return (
    <Dialog open onOpenChange={(open) => !open && onClose()} title={`Limits of ${apiKey.name}`} description="An empty field is no limit. In force within two seconds; running requests go on.">
      <form onSubmit={submit} noValidate className="grid gap-4">
        {set.error && <ErrorNotice error={asApiError(set.error)} />}
        <div className="grid gap-4 sm:grid-cols-2">
          {FIELDS.map(([name, label, hint]) => (
            <Field key={name} label={label} hint={hint} error={form.formState.errors[name]?.message}>
              {(control) => <Input {...control} {...form.register(name)} inputMode="numeric" autoComplete="off" placeholder="no limit" data-testid={`limit-${name}`} />}
            </Field>
          ))}
        </div>
        <div className="flex justify-end gap-2">
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" variant="primary" busy={set.isPending} data-testid="limits-save">
            Save
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
