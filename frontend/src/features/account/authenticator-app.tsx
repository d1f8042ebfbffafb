import { useState } from "react";
import type { AppSetup } from "@/api/types";
import { FormDialog } from "@/components/dialog";
import { CopyButton } from "@/components/code-block";
import { Field, Input } from "@/components/field";
import { toast } from "@/components/toast";
import { useConfirmApp } from "./queries";
import { RecoveryCodes } from "./recovery-codes";

/** The set-up of an authenticator app: a QR code, and a code of the app that proves it was scanned. */
export function AppSetupDialog({ setup, onClose }: { setup: AppSetup; onClose: () => void }) {
  const confirm = useConfirmApp();
  const [code, setCode] = useState("");
  const done = ({ recovery_codes }: { recovery_codes: string[] }) => {
    toast.good("Authenticator app set up");
    if (recovery_codes.length === 0) onClose();
  };
  const codes = confirm.data?.recovery_codes ?? [];
  return (
    <FormDialog
      onClose={onClose}
      title="Set up an authenticator app"
      description="Scan the QR code with an app such as Google Authenticator, 1Password or Bitwarden."
      write={confirm}
      action="Finish"
      disabled={!code.trim()}
      testId="app-finish"
      keepOpen
      result={codes.length > 0 && { title: "Save your recovery codes", content: <RecoveryCodes codes={codes} /> }}
      onSubmit={() => confirm.mutate(code.trim(), { onSuccess: done })}
    >
      <QrCode rows={setup.qr} />
      <div>
        <p className="text-xs text-ink-3">Cannot scan it? Enter this key in the app:</p>
        <div className="mt-1 flex items-center gap-2 rounded-lg border border-line-2 bg-fill py-1 pr-1 pl-3">
          <code data-testid="app-secret" className="min-w-0 flex-1 font-mono text-xs break-all">
            {setup.secret.match(/.{1,4}/g)?.join(" ")}
          </code>
          <CopyButton text={setup.secret} label="Copy the key" />
        </div>
      </div>
      <Field label="Code" hint="The six digits that the app shows now.">
        <Input
          value={code}
          onChange={(event) => setCode(event.target.value)}
          inputMode="numeric"
          autoComplete="one-time-code"
          maxLength={9}
          className="font-mono tracking-wider"
          data-testid="app-code"
        />
      </Field>
    </FormDialog>
  );
}

// Modules of white around a QR code, which readers need.
const QUIET = 4;

/** A QR code, black on white in both themes. */
function QrCode({ rows }: { rows: string[] }) {
  const size = rows.length + 2 * QUIET;
  const dark = rows.flatMap((row, y) =>
    [...row].map((module, x) => (module === "1" ? `M${x + QUIET} ${y + QUIET}h1v1h-1z` : "")),
  );
  return (
    <svg
      role="img"
      aria-label="QR code for the authenticator app"
      viewBox={`0 0 ${size} ${size}`}
      shapeRendering="crispEdges"
      className="mx-auto size-48 rounded-lg border border-line-2 bg-white"
    >
      <path d={dark.join("")} fill="#000" />
    </svg>
  );
}
