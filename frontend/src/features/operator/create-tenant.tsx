import { zodResolver } from "@hookform/resolvers/zod";
import { useForm } from "react-hook-form";
import { asApiError } from "@/api/errors";
import { Button } from "@/components/button";
import { Dialog } from "@/components/dialog";
import { Field, Input } from "@/components/field";
import { ErrorNotice } from "@/components/notices";
import { Secret } from "@/components/secret";
import { z } from "@/lib/zod";
import { useCreateTenant } from "./queries";

const SCHEMA = z.object({
  name: z.string().check(z.regex(/^\s*\S.{0,119}$/u, "Enter a name of at most 120 characters.")),
  slug: z
    .string()
    .check(z.regex(/^[a-z0-9](?:[a-z0-9-]{0,46}[a-z0-9])?$/, "1 to 48 lower-case letters, digits and hyphens.")),
  owner: z.email("Enter the e-mail address of the first owner."),
});
type Form = z.infer<typeof SCHEMA>;

export function CreateTenant({ onClose }: { onClose: () => void }) {
  const create = useCreateTenant();
  const form = useForm<Form>({ resolver: zodResolver(SCHEMA), defaultValues: { name: "", slug: "", owner: "" } });
  const { errors } = form.formState;
  const submit = form.handleSubmit((body) => create.mutate(body));
  if (create.data) {
    return (
      <Dialog
        open
        onOpenChange={(open) => !open && onClose()}
        keepOpen
        title={`Created ${create.data.name}`}
        className="max-w-2xl!"
      >
        <div className="grid gap-4">
          <Secret value={create.data.link} label="Copy link" testId="tenant-link">
            The invitation was sent to {form.getValues("owner")}. If the e-mail does not arrive, copy the link and send
            it yourself. It is not shown again, and anyone who opens it can join as owner.
          </Secret>
          <div className="flex justify-end">
            <Button variant="primary" onClick={onClose}>
              Done
            </Button>
          </div>
        </div>
      </Dialog>
    );
  }
  return (
    <Dialog
      open
      onOpenChange={(open) => !open && onClose()}
      title="Create a tenant"
      description="The first owner receives an invitation by e-mail and completes the setup."
    >
      <form onSubmit={submit} noValidate className="grid gap-4">
        {create.error && <ErrorNotice error={asApiError(create.error)} />}
        <Field label="Name" error={errors.name?.message}>
          {(control) => (
            <Input {...control} {...form.register("name")} autoComplete="off" dir="auto" data-testid="tenant-name" />
          )}
        </Field>
        <Field
          label="Short name"
          hint="Used in addresses and on statements. It cannot be changed or reused."
          error={errors.slug?.message}
        >
          {(control) => (
            <Input
              {...control}
              {...form.register("slug")}
              autoComplete="off"
              spellCheck={false}
              data-testid="tenant-slug"
            />
          )}
        </Field>
        <Field label="First owner" error={errors.owner?.message}>
          {(control) => (
            <Input
              {...control}
              {...form.register("owner")}
              type="email"
              autoComplete="off"
              data-testid="tenant-owner"
            />
          )}
        </Field>
        <div className="flex justify-end gap-2">
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" variant="primary" busy={create.isPending} data-testid="tenant-create">
            Create
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
