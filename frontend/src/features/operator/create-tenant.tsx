import { zodResolver } from "@hookform/resolvers/zod";
import { useForm } from "react-hook-form";
import { FormDialog } from "@/components/dialog";
import { Field, Input } from "@/components/field";
import { Secret } from "@/components/secret";
import { useSession } from "@/features/session/queries";
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
  const { sends_mail } = useSession();
  const { errors } = form.formState;
  const submit = form.handleSubmit((body) => create.mutate(body));
  return (
    <FormDialog
      onClose={onClose}
      title="Create a tenant"
      description={
        sends_mail
          ? "The first owner receives an invitation by e-mail and completes the setup."
          : "You get an invitation link for the first owner to pass on, because no mail server is set up."
      }
      write={create}
      action="Create"
      testId="tenant-create"
      onSubmit={submit}
      result={
        create.data && {
          title: `Created ${create.data.name}`,
          content: (
            <Secret value={create.data.link} label="Copy link" testId="tenant-link">
              {create.data.mailed
                ? `The invitation was sent to ${form.getValues("owner")}. If the e-mail does not arrive, copy the link and send it yourself.`
                : `Copy the link and send it to ${form.getValues("owner")}: no mail server is set up, so no e-mail is sent.`}{" "}
              It is not shown again, and anyone who opens it can join as owner.
            </Secret>
          ),
        }
      }
    >
      <Field label="Name" error={errors.name?.message}>
        <Input {...form.register("name")} autoComplete="off" dir="auto" data-testid="tenant-name" />
      </Field>
      <Field
        label="Short name"
        hint="Used in addresses and on statements. It cannot be changed or reused."
        error={errors.slug?.message}
      >
        <Input {...form.register("slug")} autoComplete="off" spellCheck={false} data-testid="tenant-slug" />
      </Field>
      <Field label="First owner" error={errors.owner?.message}>
        <Input {...form.register("owner")} type="email" autoComplete="off" data-testid="tenant-owner" />
      </Field>
    </FormDialog>
  );
}
