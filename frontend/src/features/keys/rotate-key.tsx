import { useState } from "react";
import type { ApiKey } from "@/api/types";
import { FormDialog } from "@/components/dialog";
import { Field, Select } from "@/components/field";
import { useTenant } from "@/features/session/queries";
import { useRotateKey } from "./queries";
import { KeySecret } from "./secret";

const GRACES: [seconds: number, label: string][] = [
  [0, "Not at all (it may have leaked)"],
  [3600, "For an hour"],
  [86_400, "For a day"],
  [604_800, "For a week"],
];

/** The dialog that replaces the secret of a key; its name, prefix and limits stay. */
export function RotateKey({ apiKey, onClose }: { apiKey: ApiKey; onClose: () => void }) {
  const rotate = useRotateKey(useTenant());
  const [grace, setGrace] = useState(86_400);
  return (
    <FormDialog
      onClose={onClose}
      title={`Rotate ${apiKey.name}`}
      description="The key gets a new secret and keeps its name, permissions, limits and usage."
      write={rotate}
      action="Rotate"
      testId="rotate-submit"
      onSubmit={() => rotate.mutate({ id: apiKey.id, grace_s: grace })}
      result={rotate.data && { title: `New secret of ${apiKey.name}`, content: <KeySecret created={rotate.data} /> }}
    >
      <Field label="Old secret remains valid" hint="Time to update every application that uses the key.">
        <Select
          value={grace}
          onChange={(event) => setGrace(Number(event.target.value))}
          data-testid="rotate-grace"
          options={GRACES}
        />
      </Field>
    </FormDialog>
  );
}
