import { useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { useLocation } from "@tanstack/react-router";
import { useQuery } from "@/app/use-query";
import { Button } from "@/components/button";
import { Dialog, FormDialog } from "@/components/dialog";
import { Field, Input } from "@/components/field";
import { ErrorNotice, Skeleton } from "@/components/notices";
import { ProviderButton } from "@/features/session/provider-button";
import { methodsQuery, useConfirmIdentity, useSession } from "@/features/session/queries";
import { CodeField, PasskeyButton } from "@/features/session/second-factor-fields";
import { toast } from "@/components/toast";
import { hasPasskeys } from "@/lib/passkeys";
import { secondFactorsQuery } from "./queries";

interface ConfirmIdentityProps {
  onConfirmed: () => void;
  onClose: () => void;
}

/** Asks for the second factor, or for the password of a person who has none. */
export function ConfirmIdentity({ onConfirmed, onClose }: ConfirmIdentityProps) {
  const { data: methods, error, refetch } = useQuery(methodsQuery("/api/session/confirmation"));
  const { user } = useSession();
  if (methods?.password) return <ByPassword onConfirmed={onConfirmed} onClose={onClose} />;
  if (methods && user?.second_factor)
    return <BySecondFactor passkeys={methods.passkey && hasPasskeys()} onConfirmed={onConfirmed} onClose={onClose} />;
  return (
    <Dialog onClose={onClose} title={TITLE} description={methods && "Sign in again to continue."}>
      <ErrorNotice error={error} onRetry={refetch} />
      {!error && !methods && <Skeleton className="h-24" />}
      {methods && <SignInAgain />}
      <div className="mt-4 flex justify-end">
        <Button onClick={onClose}>Cancel</Button>
      </div>
    </Dialog>
  );
}

const TITLE = "Confirm that it is you";

function SignInAgain() {
  return <ProviderButton next={useLocation({ select: ({ href }) => href })} />;
}

function ByPassword({ onConfirmed, onClose }: ConfirmIdentityProps) {
  const { password: confirm } = useConfirmIdentity();
  const [password, setPassword] = useState("");
  return (
    <FormDialog
      onClose={onClose}
      title={TITLE}
      description="Enter your password to continue. You will not be asked again for ten minutes."
      write={confirm}
      action="Continue"
      disabled={!password}
      testId="confirm-identity"
      onSubmit={() => confirm.mutate(password, { onSuccess: onConfirmed })}
    >
      <Field label="Password">
        <Input
          type="password"
          value={password}
          onChange={(event) => setPassword(event.target.value)}
          autoComplete="current-password"
          data-testid="confirm-password"
        />
      </Field>
    </FormDialog>
  );
}

function BySecondFactor({ passkeys, onConfirmed, onClose }: ConfirmIdentityProps & { passkeys: boolean }) {
  const { code: confirm, passkey } = useConfirmIdentity();
  const [code, setCode] = useState("");
  const byPasskey = {
    isPending: passkey.isPending,
    mutate: () => passkey.mutate(undefined, { onSuccess: (session) => session && onConfirmed() }),
  };
  return (
    <FormDialog
      onClose={onClose}
      title={TITLE}
      description="Show your second factor to continue. You will not be asked again for ten minutes."
      write={{ error: confirm.error ?? passkey.error, isPending: confirm.isPending }}
      action="Continue"
      disabled={!code.trim()}
      testId="confirm-identity"
      onSubmit={() => confirm.mutate(code.trim(), { onSuccess: onConfirmed })}
    >
      {passkeys && <PasskeyButton passkey={byPasskey} />}
      <CodeField value={code} onChange={setCode} hint="From your authenticator app, or one of your recovery codes." />
    </FormDialog>
  );
}

/** Runs an action after the person confirmed who they are, if that is needed. `dialog` has to be rendered. */
export function useConfirmed(): { run: (action: () => void) => void; dialog: ReactNode } {
  const client = useQueryClient();
  const [pending, setPending] = useState<{ action: () => void } | null>(null);
  const run = (action: () => void) =>
    // A confirmation ends after ten minutes, so what was read before may be old.
    void client
      .fetchQuery({ ...secondFactorsQuery, staleTime: 0 })
      .then(({ confirmed }) => (confirmed ? action() : setPending({ action })), toast.bad);
  const dialog = pending && (
    <ConfirmIdentity
      onClose={() => setPending(null)}
      onConfirmed={() => {
        setPending(null);
        pending.action();
      }}
    />
  );
  return { run, dialog };
}
