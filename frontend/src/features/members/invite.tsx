import { zodResolver } from "@hookform/resolvers/zod";
import type { UseMutationResult } from "@tanstack/react-query";
import { useForm, useWatch } from "react-hook-form";
import { asApiError } from "@/api/errors";
import type { CreatedInvitation, Role } from "@/api/types";
import { Button } from "@/components/button";
import { Dialog } from "@/components/dialog";
import { Field, Input, Select } from "@/components/field";
import { ErrorNotice } from "@/components/notices";
import { Secret } from "@/components/secret";
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
  const submit = form.handleSubmit((body) => invite.mutate(body));
  if (invite.data) return <Invited invitation={invite.data} onClose={onClose} />;
  return (
    <Dialog
      open
      onOpenChange={(open) => !open && onClose()}
      title={title}
      description="Lorikeet sends a link by e-mail. It is valid for one week."
    >
      <form onSubmit={submit} noValidate className="grid gap-4">
        {invite.error && <ErrorNotice error={asApiError(invite.error)} />}
        <Field label="E-mail" error={form.formState.errors.email?.message}>
          {(control) => (
            <Input
              {...control}
              {...form.register("email")}
              type="email"
              autoComplete="off"
              data-testid="invite-email"
            />
          )}
        </Field>
        <Field label="Role" hint={roleInfo(role).can}>
          {(control) => (
            <Select {...control} {...form.register("role")} className="capitalize" data-testid="invite-role">
              {roles.map((one) => (
                <option key={one} value={one}>
                  {one}
                </option>
              ))}
            </Select>
          )}
        </Field>
        <div className="flex justify-end gap-2">
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" variant="primary" busy={invite.isPending} data-testid="invite-submit">
            Send invitation
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

function Invited({ invitation, onClose }: { invitation: CreatedInvitation; onClose: () => void }) {
  return (
    <Dialog open onOpenChange={(open) => !open && onClose()} keepOpen title="Invitation sent" className="max-w-2xl!">
      <div className="grid gap-4">
        <Secret value={invitation.link} label="Copy link" testId="invite-link">
          The link was sent to {invitation.email}. If the e-mail does not arrive, copy the link and send it yourself. It
          is not shown again, and anyone who opens it can join.
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
