import { type ComponentProps, createContext, type ReactNode, use, useId } from "react";
import { cn } from "@/lib/cn";

/** Class names of every control of a form. */
export const CONTROL =
  "w-full rounded-lg border border-line-2 bg-surface px-3 text-sm text-ink shadow-card transition-colors hover:border-ink-3 " +
  "focus-visible:outline-offset-0 aria-invalid:border-danger disabled:opacity-60";

interface ControlProps {
  id?: string;
  "aria-describedby"?: string;
  "aria-invalid"?: true;
}

/** The ids that tie the control of a `Field` to its label, hint and error. */
const FieldControl = createContext<ControlProps>({});

/** Returns the ids that a control of another kind needs inside a `Field`. */
export const useFieldControl = () => use(FieldControl);

export function Input({ className, ...props }: ComponentProps<"input">) {
  return <input {...use(FieldControl)} {...props} className={cn(CONTROL, "h-9", className)} />;
}

export function Textarea({ className, ...props }: ComponentProps<"textarea">) {
  return <textarea {...use(FieldControl)} {...props} className={cn(CONTROL, "min-h-16 resize-y py-2", className)} />;
}

export type Option = string | readonly [value: string | number, label: string];

/** A native select. An option without a label shows its value. */
export function Select({ className, options, ...props }: ComponentProps<"select"> & { options: readonly Option[] }) {
  return (
    <select {...use(FieldControl)} {...props} className={cn(CONTROL, "h-9 pr-8", className)}>
      {options.map((option) => {
        const [value, label] = typeof option === "string" ? [option, option] : option;
        return (
          <option key={value} value={value}>
            {label}
          </option>
        );
      })}
    </select>
  );
}

interface FieldProps {
  label: string;
  hint?: ReactNode;
  error?: string;
  /** An `Input`, `Textarea` or `Select`. */
  children: ReactNode;
}

export function Field({ label, hint, error, children }: FieldProps) {
  const id = useId();
  const described = error || hint ? `${id}-note` : undefined;
  return (
    <div className="field grid content-start gap-1.5">
      <label htmlFor={id} className="text-sm font-medium text-ink">
        {label}
      </label>
      <FieldControl value={{ id, "aria-describedby": described, "aria-invalid": error ? true : undefined }}>
        {children}
      </FieldControl>
      {described && (
        <p
          id={described}
          className={cn("text-xs", error ? "text-danger-text" : "text-ink-3")}
          role={error ? "alert" : undefined}
        >
          {error ?? hint}
        </p>
      )}
    </div>
  );
}
