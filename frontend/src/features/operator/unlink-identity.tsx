import { useState } from "react";
import type { LinkedIdentity, TenantMember } from "@/api/types";
import { Button } from "@/components/button";
import { Confirm } from "@/components/dialog";
import { toastThen } from "@/components/toast";
import { useConfirmed } from "@/features/account/confirm-identity";
import { useTenantActions } from "./queries";

type Props = { tenant: string; person: TenantMember; identity: LinkedIdentity };

/** A button that removes the link between a person's account and the sign-in provider. */
export function UnlinkIdentity({ tenant, person, identity: { id: identity, issuer, subject } }: Props) {
  const { unlinkIdentity: unlink } = useTenantActions(tenant);
  const { run, dialog } = useConfirmed();
  const [asking, setAsking] = useState(false);
  const close = () => setAsking(false);
  return (
    <>
      <Button
        size="sm"
        variant="ghost"
        title={`${subject} at ${issuer}`}
        aria-label={`Unlink sign-in of ${person.email} as ${subject}`}
        onClick={() => run(() => setAsking(true))}
      >
        Unlink sign-in
      </Button>
      {dialog}
      <Confirm
        open={asking}
        onClose={close}
        title={`Unlink the sign-in of ${person.name || person.email}?`}
        description={`Removes the link to ${subject} at ${issuer}, and signs the person out. The next person who signs in there with the address ${person.email} gets this account, so first make sure that the address is still theirs.`}
        action="Unlink"
        write={unlink}
        onConfirm={() =>
          unlink.mutate({ id: person.id, identity }, toastThen(`Unlinked the sign-in of ${person.email}`, close))
        }
      />
    </>
  );
}
