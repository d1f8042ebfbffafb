import { useEffect, useRef, useState } from "react";
import { useQuery } from "@/app/use-query";
import { Button } from "@/components/button";
import { ErrorNotice } from "@/components/notices";
import { hasPasskeys } from "@/lib/passkeys";
import { CodeField, PasskeyButton } from "./second-factor-fields";
import { methodsQuery, useSecondStep, useSession, useStartOver } from "./queries";

/** The second step of signing in: a code, or a passkey. */
export function SecondFactorStep() {
  const { second_factor_for: email } = useSession();
  const { data: methods, error, refetch } = useQuery(methodsQuery("/api/session/second-factor"));
  const { code: showCode, passkey } = useSecondStep();
  const startOver = useStartOver();
  const [code, setCode] = useState("");
  const [missing, setMissing] = useState(false);
  // The step replaces the form that had the focus.
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => field.current?.focus(), []);
  const offersPasskey = methods?.passkey && hasPasskeys();
  return (
    <div className="grid gap-4">
      <p className="text-sm text-ink-2">
        Signing in as <span className="font-medium break-all">{email}</span>
      </p>
      <ErrorNotice error={error} onRetry={refetch} />
      <ErrorNotice error={showCode.error ?? passkey.error} />
      {offersPasskey && <PasskeyButton passkey={passkey} />}
      {offersPasskey && <p className="text-center text-xs text-ink-3">or with a code</p>}
      <form
        noValidate
        className="grid gap-4"
        onSubmit={(event) => {
          event.preventDefault();
          setMissing(!code.trim());
          if (code.trim()) showCode.mutate(code.trim());
          else field.current?.focus();
        }}
      >
        <CodeField
          value={code}
          onChange={setCode}
          ref={field}
          error={missing && !code.trim() ? "Enter a code." : undefined}
          hint={
            methods?.app === false
              ? "One of your recovery codes."
              : "From your authenticator app. If you lost it, enter one of your recovery codes."
          }
        />
        <Button type="submit" variant="primary" busy={showCode.isPending} className="h-9.5!" data-testid="code-submit">
          Continue
        </Button>
      </form>
      <p className="text-xs text-ink-3">
        Lost your second factor and your recovery codes? The operator of this installation can reset it.
      </p>
      <Button variant="ghost" busy={startOver.isPending} onClick={() => startOver.mutate()}>
        Sign in as somebody else
      </Button>
    </div>
  );
}
