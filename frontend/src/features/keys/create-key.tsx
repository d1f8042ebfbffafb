import { zodResolver } from "@hookform/resolvers/zod";
import { useQuery } from "@tanstack/react-query";
import { TriangleAlert } from "lucide-react";
import { useForm } from "react-hook-form";
import { asApiError } from "@/api/errors";
import type { CreatedKey } from "@/api/types";
import { Button } from "@/components/button";
import { CopyButton, Snippets } from "@/components/code";
import { Dialog } from "@/components/dialog";
import { Field, Input, Select } from "@/components/field";
import { ErrorNotice } from "@/components/notices";
import { modelsQuery } from "@/features/adapters/queries";
import { useTenant } from "@/features/session/queries";
import { z } from "@/lib/zod";
import { useCreateKey } from "./queries";

const SCHEMA = z.object({
  name: z.string().check(z.trim(), z.minLength(1, "Name the key after what will use it."), z.maxLength(80, "At most 80 characters.")),
  days: z.enum(["0", "30", "90", "365"]),
});
type Form = z.infer<typeof SCHEMA>;

const LIFETIMES: [value: Form["days"], label: string][] = [
  ["0", "Never expires"],
  ["30", "In 30 days"],
  ["90", "In 90 days"],
  ["365", "In a year"],
];

const inDays = (days: number) => new Date(Date.now() + days * 86_400_000).toISOString();

export function CreateKey({ onClose }: { onClose: () => void }) {
  const create = useCreateKey(useTenant());
  const made = create.data;
  return (
    <Dialog
      open
      onOpenChange={(open) => !open && onClose()}
      title={made ? "Your new key" : "Create an API key"}
      description={made ? undefined : "It may read this tenant, manage its adapters and run inference."}
      className={made ? "max-w-2xl!" : undefined}
    >
      {made ? <Secret created={made} onClose={onClose} /> : <KeyForm create={create} onClose={onClose} />}
    </Dialog>
  );
}

function KeyForm({ create, onClose }: { create: ReturnType<typeof useCreateKey>; onClose: () => void }) {
  const form = useForm<Form>({ resolver: zodResolver(SCHEMA), defaultValues: { name: "", days: "0" } });
  const submit = form.handleSubmit(({ name, days }) =>
    create.mutate({ name, ...(days === "0" ? {} : { expires_at: inDays(Number(days)) }) }),
  );
  return (
    <form onSubmit={submit} noValidate className="grid gap-4">
      {create.error && <ErrorNotice error={asApiError(create.error)} />}
      <Field label="Name" hint="For example: production backend, notebook of Ada." error={form.formState.errors.name?.message}>
        {(control) => <Input {...control} {...form.register("name")} autoComplete="off" data-testid="key-name" />}
      </Field>
      <Field label="Expires">
        {(control) => (
          <Select {...control} {...form.register("days")}>
            {LIFETIMES.map(([value, label]) => (
              <option key={value} value={value}>
                {label}
              </option>
            ))}
          </Select>
        )}
      </Field>
      <div className="flex justify-end gap-2">
        <Button onClick={onClose}>Cancel</Button>
        <Button type="submit" variant="primary" busy={create.isPending} data-testid="key-create">
          Create key
        </Button>
      </div>
    </form>
  );
}

function Secret({ created, onClose }: { created: CreatedKey; onClose: () => void }) {
  const { data: models } = useQuery(modelsQuery(useTenant()));
  const model = models?.find(({ kind }) => kind === "adapter") ?? models?.[0];
  return (
    <div className="grid gap-4">
      <div className="flex gap-2.5 rounded-lg bg-amber-soft px-3.5 py-2.5 text-sm text-amber-text">
        <TriangleAlert className="mt-0.5 size-4 shrink-0" aria-hidden />
        Copy it now and keep it where your application reads its secrets. It cannot be shown again.
      </div>
      <div className="flex items-center gap-2 rounded-lg border border-line-2 bg-fill py-1.5 pr-1.5 pl-3.5">
        <code data-testid="key-secret" className="min-w-0 flex-1 font-mono text-sm break-all">
          {created.secret}
        </code>
        <CopyButton text={created.secret} label="Copy secret" />
      </div>
      <div className="min-w-0">
        <h3 className="mb-2 text-sm font-semibold">Use it</h3>
        {model && <Snippets model={model.id} origin={location.origin} secret={created.secret} />}
      </div>
      <div className="flex justify-end">
        <Button variant="primary" onClick={onClose}>
          Done
        </Button>
      </div>
    </div>
  );
}
