import { KeyRound } from "lucide-react";
import type { Ref } from "react";
import { Button } from "@/components/button";
import { Field, Input } from "@/components/field";

interface CodeFieldProps {
  value: string;
  onChange: (value: string) => void;
  hint: string;
  error?: string;
  ref?: Ref<HTMLInputElement>;
}

/** A field for a code of an authenticator app or a recovery code. */
export function CodeField({ value, onChange, hint, error, ref }: CodeFieldProps) {
  return (
    <Field label="Code" hint={hint} error={error}>
      <Input
        ref={ref}
        value={value}
        onChange={(event) => onChange(event.target.value)}
        autoComplete="one-time-code"
        autoCapitalize="none"
        spellCheck={false}
        maxLength={40}
        className="font-mono tracking-wider"
        data-testid="code"
      />
    </Field>
  );
}

/** A button that asks the browser for a passkey. */
export function PasskeyButton({ passkey }: { passkey: { isPending: boolean; mutate: () => void } }) {
  return (
    <Button className="h-9.5!" busy={passkey.isPending} onClick={() => passkey.mutate()} data-testid="use-passkey">
      <KeyRound /> Use a passkey
    </Button>
  );
}
