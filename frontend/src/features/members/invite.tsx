import { zodResolver } from "@hookform/resolvers/zod";
import { useForm, useWatch } from "react-hook-form";
import { asApiError } from "@/api/errors";
import type { CreatedInvitation, Role } from "@/api/types";
import { Button } from "@/components/button";
import { Dialog } from "@/components/dialog";
import { Field, Input, Select } from "@/components/field";
import { ErrorNotice } from "@/components/notices";
import { Secret } from "@/components/secret";
import { useTenant } from "@/features/session/queries";
import { z } from "@/lib/zod";
import { useMemberActions } from "./queries";
import { roleInfo } from "./roles";

const SCHEMA = z.object({
  email: z.email("Enter the e-mail address of the person."),
  role: z.enum(["owner", "admin", "developer", "viewer"]),
});
type Form = z.infer<typeof SCHEMA>;

export function Invite({ roles, onClose }: { roles: Role[]; onClose: () => void }) {
  const { invite } = useMemberActions(useTenant());
  const form = useForm<Form>({ resolver: zodResolver(SCHEMA), defaultValues: { email: "", role: "developer" } });
  const role = useWatch({ control: form.control, name: "role" });
  const submit = form.handleSubmit((body) => invite.mutate(body));
  if (invite.data) return <Invited invitation={invite.data} onClose={onClose} />;
  return (
    <Dialog
      open
      onOpenChange={(open) => !open && onClose()}
      title="Invite a person"
      description="They get a mail with a link that is good for a week."
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
          The link is on its way to {invitation.email}. Should the mail not arrive, hand it over yourself: it is shown
          only now, and whoever opens it can join.
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
