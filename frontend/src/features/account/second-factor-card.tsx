import { KeyRound, LifeBuoy, Smartphone } from "lucide-react";
import { type ReactNode, useState } from "react";
import type { AppSetup, SecondFactors } from "@/api/types";
import { useQuery } from "@/app/use-query";
import { Status } from "@/components/badge";
import { Button } from "@/components/button";
import { Card } from "@/components/card";
import { Confirm, Dialog, DoneButton, FormDialog } from "@/components/dialog";
import { Field, Input } from "@/components/field";
import { ErrorNotice, SkeletonRows } from "@/components/notices";
import { RelativeTime } from "@/components/relative-time";
import { toast } from "@/components/toast";
import { deviceName } from "@/lib/device";
import { hasPasskeys } from "@/lib/passkeys";
import { AppSetupDialog } from "./authenticator-app";
import { useConfirmed } from "./confirm-identity";
import {
  secondFactorsQuery,
  useAddPasskey,
  useRemoveApp,
  useRemovePasskey,
  useReplaceCodes,
  useSetUpApp,
} from "./queries";
import { RecoveryCodes } from "./recovery-codes";

/** The person's second factors, with dialogs that add and remove them. */
export function SecondFactorCard() {
  const { data, error, refetch } = useQuery(secondFactorsQuery);
  const isOn = data && (data.app !== null || data.passkeys.length > 0);
  return (
    <Card
      title="Two-factor authentication"
      note="Asked for after your password when you sign in"
      actions={data && <Status tone={isOn ? "green" : "neutral"} label={isOn ? "On" : "Off"} />}
    >
      <ErrorNotice error={error} onRetry={refetch} className="m-4" />
      {!error && !data && <SkeletonRows rows={3} />}
      {data && <Factors factors={data} isOn={Boolean(isOn)} />}
    </Card>
  );
}

function Factors({ factors, isOn }: { factors: SecondFactors; isOn: boolean }) {
  const { run, dialog } = useConfirmed();
  return (
    <>
      {isOn && factors.required_by.length > 0 && (
        <p className="border-b px-4 py-2.5 text-xs text-ink-2">
          Required by {factors.required_by.join(", ")}. Your last second factor cannot be removed.
        </p>
      )}
      <ul aria-label="Second factors" className="divide-y">
        <App app={factors.app} run={run} />
        <Passkeys factors={factors} run={run} />
        {isOn && <Codes left={factors.recovery_codes_left} run={run} />}
      </ul>
      {dialog}
    </>
  );
}

interface RowProps {
  icon: ReactNode;
  title: string;
  note: ReactNode;
  children?: ReactNode;
}

function Row({ icon, title, note, children }: RowProps) {
  return (
    <li className="flex flex-wrap items-center gap-x-4 gap-y-2 px-4 py-3 text-sm">
      <span className="text-ink-3 [&_svg]:size-4.5">{icon}</span>
      <div className="min-w-0 flex-1 basis-48">
        <p className="font-medium break-words">{title}</p>
        <p className="text-xs text-ink-3">{note}</p>
      </div>
      <div className="flex flex-wrap gap-2">{children}</div>
    </li>
  );
}

interface ActionProps {
  /** Runs an action after the person confirmed who they are. */
  run: (action: () => void) => void;
}

function lastUsed(at: string | null): ReactNode {
  return at ? (
    <>
      last used <RelativeTime at={at} />
    </>
  ) : (
    "not used yet"
  );
}

function App({ app, run }: ActionProps & { app: SecondFactors["app"] }) {
  const begin = useSetUpApp();
  const remove = useRemoveApp();
  const [setup, setSetup] = useState<AppSetup | null>(null);
  const [removing, setRemoving] = useState(false);
  const start = () => begin.mutate(undefined, { onSuccess: setSetup, onError: toast.bad });
  return (
    <>
      <Row
        icon={<Smartphone aria-hidden />}
        title="Authenticator app"
        note={
          app ? (
            <>
              Added <RelativeTime at={app.created_at} />, {lastUsed(app.last_used_at)}
            </>
          ) : (
            "An app on your phone shows a new code every 30 seconds."
          )
        }
      >
        <Button size="sm" busy={begin.isPending} onClick={() => run(start)} data-testid="set-up-app">
          {app ? "Replace" : "Set up"}
        </Button>
        {app && (
          <Button size="sm" onClick={() => run(() => setRemoving(true))} aria-label="Remove the authenticator app">
            Remove
          </Button>
        )}
      </Row>
      {setup && <AppSetupDialog setup={setup} onClose={() => setSetup(null)} />}
      <Confirm
        open={removing}
        onClose={() => setRemoving(false)}
        title="Remove the authenticator app?"
        description="Its codes will no longer be accepted. If it is your only second factor, your recovery codes end too, and your password signs you in alone."
        action="Remove"
        write={remove}
        onConfirm={() => remove.mutate(undefined, { onSuccess: () => setRemoving(false) })}
      />
    </>
  );
}

function Passkeys({ factors, run }: ActionProps & { factors: SecondFactors }) {
  const [adding, setAdding] = useState(false);
  const [removed, setRemoved] = useState<SecondFactors["passkeys"][number] | null>(null);
  const remove = useRemovePasskey();
  const available = factors.passkeys_available && hasPasskeys();
  return (
    <>
      {factors.passkeys.map((passkey) => (
        <Row
          key={passkey.id}
          icon={<KeyRound aria-hidden />}
          title={passkey.name}
          note={
            <>
              Passkey added <RelativeTime at={passkey.created_at} />, {lastUsed(passkey.last_used_at)}
            </>
          }
        >
          <Button
            size="sm"
            aria-label={`Remove the passkey ${passkey.name}`}
            onClick={() => run(() => setRemoved(passkey))}
          >
            Remove
          </Button>
        </Row>
      ))}
      <Row
        icon={<KeyRound aria-hidden />}
        title={factors.passkeys.length > 0 ? "Another passkey" : "Passkeys"}
        note={
          available
            ? "A fingerprint, face, screen lock or security key. It cannot be phished."
            : "Not available here: browsers offer passkeys only to pages with a host name and HTTPS."
        }
      >
        {available && (
          <Button size="sm" onClick={() => run(() => setAdding(true))} data-testid="add-passkey">
            Add a passkey
          </Button>
        )}
      </Row>
      {adding && <AddPasskey onClose={() => setAdding(false)} />}
      <Confirm
        open={removed !== null}
        onClose={() => setRemoved(null)}
        title={`Remove the passkey ${removed?.name ?? ""}?`}
        description="It will no longer sign you in here. Remove it from your device or password manager too. If it is your only second factor, your recovery codes end too, and your password signs you in alone."
        action="Remove"
        write={remove}
        onConfirm={() => removed && remove.mutate(removed.id, { onSuccess: () => setRemoved(null) })}
      />
    </>
  );
}

function AddPasskey({ onClose }: { onClose: () => void }) {
  const add = useAddPasskey();
  const [name, setName] = useState(() => deviceName(navigator.userAgent));
  const codes = add.data?.recovery_codes ?? [];
  return (
    <FormDialog
      onClose={onClose}
      title="Add a passkey"
      description="Your browser asks which device or password manager keeps the passkey."
      write={add}
      action="Continue"
      disabled={!name.trim()}
      testId="passkey-continue"
      result={codes.length > 0 && { title: "Save your recovery codes", content: <RecoveryCodes codes={codes} /> }}
      onSubmit={() =>
        add.mutate(name.trim(), {
          onSuccess: (answer) => {
            if (!answer) return;
            toast.good("Passkey added");
            if (answer.recovery_codes.length === 0) onClose();
          },
        })
      }
    >
      <Field label="Name" hint="To recognise it in this list.">
        <Input
          value={name}
          onChange={(event) => setName(event.target.value)}
          autoComplete="off"
          maxLength={60}
          data-testid="passkey-name"
        />
      </Field>
      {add.isSuccess && !add.data && (
        <p role="status" className="text-sm text-ink-2">
          No passkey was added: the browser’s dialog was cancelled, or took too long.
        </p>
      )}
    </FormDialog>
  );
}

function Codes({ left, run }: ActionProps & { left: number }) {
  const replace = useReplaceCodes();
  const [asking, setAsking] = useState(false);
  const [codes, setCodes] = useState<string[] | null>(null);
  return (
    <>
      <Row
        icon={<LifeBuoy aria-hidden />}
        title="Recovery codes"
        note={
          <span className={left < 3 ? "text-amber-text" : undefined}>
            {left} of 10 left. Each signs you in once if you lost your other second factors.
          </span>
        }
      >
        <Button size="sm" onClick={() => run(() => setAsking(true))} data-testid="new-codes">
          Create new codes
        </Button>
      </Row>
      <Confirm
        open={asking}
        onClose={() => setAsking(false)}
        title="Create new recovery codes?"
        description="The codes that you saved before will no longer work."
        action="Create new codes"
        write={replace}
        onConfirm={() =>
          replace.mutate(undefined, {
            onSuccess: (answer) => {
              setAsking(false);
              setCodes(answer.recovery_codes);
            },
          })
        }
      />
      {codes && (
        <Dialog onClose={() => setCodes(null)} title="Save your recovery codes" keepOpen className="max-w-2xl!">
          <div className="grid gap-4">
            <RecoveryCodes codes={codes} />
            <DoneButton onClose={() => setCodes(null)} />
          </div>
        </Dialog>
      )}
    </>
  );
}
