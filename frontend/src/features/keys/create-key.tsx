import { zodResolver } from "@hookform/resolvers/zod";
import { useForm } from "react-hook-form";
import { asApiError } from "@/api/errors";
import { Button } from "@/components/button";
import { Dialog } from "@/components/dialog";
import { Field, Input, Select } from "@/components/field";
import { ErrorNotice } from "@/components/notices";
import { useTenant } from "@/features/session/queries";
import { z } from "@/lib/zod";
import { useCreateKey } from "./queries";
import { ALL_SCOPES, Scopes } from "./scopes";
import { KeySecret } from "./secret";

const SCHEMA = z.object({
  name: z
    .string()
    .check(
      z.trim(),
      z.minLength(1, "Enter a name that says what will use the key."),
      z.maxLength(80, "At most 80 characters."),
    ),
  scopes: z.array(z.enum(["view", "infer", "adapters.write"])).check(z.minLength(1, "Select at least one.")),
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
      keepOpen={Boolean(made)}
      open
      onOpenChange={(open) => !open && onClose()}
      title={made ? "Your new key" : "Create an API key"}
      className={made ? "max-w-2xl!" : undefined}
    >
      {made ? <KeySecret created={made} onClose={onClose} /> : <KeyForm create={create} onClose={onClose} />}
    </Dialog>
  );
}

function KeyForm({ create, onClose }: { create: ReturnType<typeof useCreateKey>; onClose: () => void }) {
  const form = useForm<Form>({
    resolver: zodResolver(SCHEMA),
    defaultValues: { name: "", scopes: ALL_SCOPES, days: "0" },
  });
  const submit = form.handleSubmit(({ name, scopes, days }) =>
    create.mutate({ name, scopes, ...(days === "0" ? {} : { expires_at: inDays(Number(days)) }) }),
  );
  return (
    <form onSubmit={submit} noValidate className="grid gap-4">
      {create.error && <ErrorNotice error={asApiError(create.error)} />}
      <Field
        label="Name"
        hint="For example: production backend, notebook of Ada."
        error={form.formState.errors.name?.message}
      >
        {(control) => <Input {...control} {...form.register("name")} autoComplete="off" data-testid="key-name" />}
      </Field>
      <Scopes control={form.control} name="scopes" error={form.formState.errors.scopes?.message} />
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
