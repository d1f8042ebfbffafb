import { useState } from "react";
import { asApiError } from "@/api/errors";
import type { ApiKey } from "@/api/types";
import { Button } from "@/components/button";
import { Dialog } from "@/components/dialog";
import { Field, Select } from "@/components/field";
import { ErrorNotice } from "@/components/notices";
import { useTenant } from "@/features/session/queries";
import { useRotateKey } from "./queries";
import { KeySecret } from "./secret";

const GRACES: [seconds: number, label: string][] = [
  [0, "Not at all (it may have leaked)"],
  [3600, "For an hour"],
  [86_400, "For a day"],
  [604_800, "For a week"],
];

/** A new secret under the same name, prefix and limits. */
export function RotateKey({ apiKey, onClose }: { apiKey: ApiKey; onClose: () => void }) {
  const rotate = useRotateKey(useTenant());
  const [grace, setGrace] = useState(86_400);
  const made = rotate.data;
  return (
    <Dialog
      keepOpen={Boolean(made)}
      open
      onOpenChange={(open) => !open && onClose()}
      title={made ? `New secret of ${apiKey.name}` : `Rotate ${apiKey.name}`}
      description={made ? undefined : "The key gets a new secret and keeps its name, scopes, limits and usage."}
      className={made ? "max-w-2xl!" : undefined}
    >
      {made ? (
        <KeySecret created={made} onClose={onClose} />
      ) : (
        <div className="grid gap-4">
          {rotate.error && <ErrorNotice error={asApiError(rotate.error)} />}
          <Field label="Old secret remains valid" hint="Time to update every application that uses the key.">
            {(control) => (
              <Select
                {...control}
                value={grace}
                onChange={(event) => setGrace(Number(event.target.value))}
                data-testid="rotate-grace"
              >
                {GRACES.map(([seconds, label]) => (
                  <option key={seconds} value={seconds}>
                    {label}
                  </option>
                ))}
              </Select>
            )}
          </Field>
          <div className="flex justify-end gap-2">
            <Button onClick={onClose}>Cancel</Button>
            <Button
              variant="primary"
              busy={rotate.isPending}
              onClick={() => rotate.mutate({ id: apiKey.id, grace_s: grace })}
              data-testid="rotate-submit"
            >
              Rotate
            </Button>
          </div>
        </div>
      )}
    </Dialog>
  );
}
