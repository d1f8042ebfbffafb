import { zodResolver } from "@hookform/resolvers/zod";
import type { UseMutationResult } from "@tanstack/react-query";
import { useForm, useWatch } from "react-hook-form";
import type { CreatedInvitation, Role } from "@/api/types";
import { FormDialog } from "@/components/dialog";
import { Field, Input, Select } from "@/components/field";
import { Secret } from "@/components/secret";
import { useSession } from "@/features/session/queries";
import { z } from "@/lib/zod";
import { roleInfo } from "./roles";

const SCHEMA = z.object({
  email: z.email("Enter the person’s e-mail address."),
  role: z.enum(["owner", "admin", "developer", "viewer"]),
});
type Form = z.infer<typeof SCHEMA>;

interface InviteProps {
  title: string;
  invite: UseMutationResult<CreatedInvitation, Error, Form>;
  roles: Role[];
  defaultRole: Role;
  onClose: () => void;
}

/** The dialog that invites a person into a tenant and shows the link once. */
export function Invite({ title, invite, roles, defaultRole, onClose }: InviteProps) {
  const form = useForm<Form>({ resolver: zodResolver(SCHEMA), defaultValues: { email: "", role: defaultRole } });
  const role = useWatch({ control: form.control, name: "role" });
  const { sends_mail } = useSession();
  const submit = form.handleSubmit((body) => invite.mutate(body));
  return (
    <FormDialog
      onClose={onClose}
      title={title}
      description={
        sends_mail
          ? "Lorikeet sends a link by e-mail. It is valid for one week."
          : "You get a link to pass on, because no mail server is set up. It is valid for one week."
      }
      write={invite}
      action={sends_mail ? "Send invitation" : "Create invitation"}
      testId="invite-submit"
      onSubmit={submit}
      result={
        invite.data && {
          title: invite.data.mailed ? "Invitation sent" : "Invitation created",
          content: (
            <Secret value={invite.data.link} label="Copy link" testId="invite-link">
              {invite.data.mailed
                ? `The link was sent to ${invite.data.email}. If the e-mail does not arrive, copy the link and send it yourself.`
                : `Copy the link and send it to ${invite.data.email}: no mail server is set up, so no e-mail is sent.`}{" "}
              It is not shown again, and anyone who opens it can join.
            </Secret>
          ),
        }
      }
    >
      <Field label="E-mail" error={form.formState.errors.email?.message}>
        <Input {...form.register("email")} type="email" autoComplete="off" data-testid="invite-email" />
      </Field>
      <Field label="Role" hint={roleInfo(role).can}>
        <Select {...form.register("role")} className="capitalize" data-testid="invite-role" options={roles} />
      </Field>
    </FormDialog>
  );
}
