import { zodResolver } from "@hookform/resolvers/zod";
import { useForm } from "react-hook-form";
import { FormDialog } from "@/components/dialog";
import { Field, Input, Select } from "@/components/field";
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
  const form = useForm<Form>({
    resolver: zodResolver(SCHEMA),
    defaultValues: { name: "", scopes: ALL_SCOPES, days: "0" },
  });
  const submit = form.handleSubmit(({ name, scopes, days }) =>
    create.mutate({ name, scopes, ...(days === "0" ? {} : { expires_at: inDays(Number(days)) }) }),
  );
  return (
    <FormDialog
      onClose={onClose}
      title="Create an API key"
      write={create}
      action="Create key"
      testId="key-create"
      onSubmit={submit}
      result={create.data && { title: "Your new key", content: <KeySecret created={create.data} /> }}
    >
      <Field
        label="Name"
        hint="For example: production backend, notebook of Ada."
        error={form.formState.errors.name?.message}
      >
        <Input {...form.register("name")} autoComplete="off" data-testid="key-name" />
      </Field>
      <Scopes control={form.control} name="scopes" error={form.formState.errors.scopes?.message} />
      <Field label="Expires">
        <Select {...form.register("days")} options={LIFETIMES} />
      </Field>
    </FormDialog>
  );
}
