import { Controller, type Control, type FieldValues, type Path } from "react-hook-form";
import type { KeyScope } from "@/api/types";
import { CheckOption } from "@/components/check-option";

const SCOPES: [scope: KeyScope, meaning: string][] = [
  ["infer", "Run inference with the tenant's adapters"],
  ["view", "Read adapters, usage and requests"],
  ["adapters.write", "Upload, promote and archive adapters"],
];

export const ALL_SCOPES = SCOPES.map(([scope]) => scope);

/** Checkboxes for the scopes of a key, of which at least one is required. */
export function Scopes<T extends FieldValues>({
  control,
  name,
  error,
}: {
  control: Control<T>;
  name: Path<T>;
  error?: string;
}) {
  return (
    <Controller
      control={control}
      name={name}
      render={({ field }) => {
        const chosen = field.value as KeyScope[];
        const toggle = (scope: KeyScope, on: boolean) =>
          field.onChange(ALL_SCOPES.filter((one) => (one === scope ? on : chosen.includes(one))));
        return (
          <fieldset className="grid gap-1.5">
            <legend className="mb-1 text-sm font-medium">Permissions</legend>
            {SCOPES.map(([scope, meaning]) => (
              <CheckOption
                key={scope}
                value={scope}
                meaning={meaning}
                checked={chosen.includes(scope)}
                onChange={(event) => toggle(scope, event.target.checked)}
              />
            ))}
            {error && (
              <p role="alert" className="text-xs text-danger-text">
                {error}
              </p>
            )}
          </fieldset>
        );
      }}
    />
  );
}
