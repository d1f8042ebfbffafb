import { useState } from "react";
import type { Member } from "@/api/types";
import { Button } from "@/components/button";
import { Confirm } from "@/components/dialog";
import { toastThen } from "@/components/toast";
import { useConfirmed } from "@/features/account/confirm-identity";
import { useTenantActions } from "./queries";

/** A button that removes the second factors of a person who lost them. */
export function ResetSecondFactor({ tenant, person }: { tenant: string; person: Member }) {
  const { resetSecondFactor: reset } = useTenantActions(tenant);
  const { run, dialog } = useConfirmed();
  const [asking, setAsking] = useState(false);
  const close = () => setAsking(false);
  return (
    <>
      <Button
        size="sm"
        variant="ghost"
        aria-label={`Reset 2FA of ${person.email}`}
        onClick={() => run(() => setAsking(true))}
      >
        Reset 2FA
      </Button>
      {dialog}
      <Confirm
        open={asking}
        onClose={close}
        title={`Reset the second factor of ${person.name || person.email}?`}
        description="Removes their authenticator app, passkeys and recovery codes, in all of their tenants, and signs them out. Their password then signs them in alone, so first make sure that the request came from them."
        action="Reset"
        write={reset}
        onConfirm={() => reset.mutate(person.id, toastThen(`Reset the second factor of ${person.email}`, close))}
      />
    </>
  );
}
