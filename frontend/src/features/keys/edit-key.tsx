import { zodResolver } from "@hookform/resolvers/zod";
import { useForm } from "react-hook-form";
import type { ApiKey } from "@/api/types";
import { FormDialog } from "@/components/dialog";
import { Field, Input } from "@/components/field";
import { toastThen } from "@/components/toast";
import { useTenant } from "@/features/session/queries";
import { z } from "@/lib/zod";
import { useChangeKey } from "./queries";
import { Scopes } from "./scopes";

const SCHEMA = z.object({
  name: z
    .string()
    .check(
      z.trim(),
      z.minLength(1, "Enter a name that says what uses the key."),
      z.maxLength(80, "At most 80 characters."),
    ),
  scopes: z.array(z.enum(["view", "infer", "adapters.write"])).check(z.minLength(1, "Select at least one.")),
  /** A date, or "" for a key that never expires. */
  expires: z.string(),
});
type Form = z.infer<typeof SCHEMA>;

/** Returns the end of a day by the browser's clock: a key is valid for all of its last day. */
const endOf = (day: string) => (day ? new Date(`${day}T23:59:59`).toISOString() : null);
const dayOf = (iso: string | null) =>
  iso ? new Date(Date.parse(iso) - new Date(iso).getTimezoneOffset() * 60_000).toISOString().slice(0, 10) : "";

export function EditKey({ apiKey, onClose }: { apiKey: ApiKey; onClose: () => void }) {
  const change = useChangeKey(useTenant());
  const expires = dayOf(apiKey.expires_at);
  const form = useForm<Form>({
    resolver: zodResolver(SCHEMA),
    defaultValues: { name: apiKey.name, scopes: apiKey.scopes, expires },
  });
  const submit = form.handleSubmit(({ name, scopes, expires: day }) => {
    const body = { name, scopes, ...(day === expires ? {} : { expires_at: endOf(day) }) };
    change.mutate({ id: apiKey.id, body }, toastThen(`Changed ${name}`, onClose));
  });
  return (
    <FormDialog
      onClose={onClose}
      title={`Edit ${apiKey.name}`}
      description="The secret does not change. New permissions take effect immediately."
      write={change}
      action="Save"
      onSubmit={submit}
    >
      <Field label="Name" error={form.formState.errors.name?.message}>
        <Input {...form.register("name")} autoComplete="off" />
      </Field>
      <Scopes control={form.control} name="scopes" error={form.formState.errors.scopes?.message} />
      <Field label="Last day" hint="Leave empty for a key that never expires.">
        <Input {...form.register("expires")} type="date" />
      </Field>
    </FormDialog>
  );
}
