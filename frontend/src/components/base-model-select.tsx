import { Select } from "./field";

interface Props {
  value: string | undefined;
  /** Names of the base models. The selected one is offered even if it is not among them. */
  names: readonly string[];
  onChange: (chosen: string | undefined) => void;
  className?: string;
}

/** A filter by base model. It is not shown where there is only one. */
export function BaseModelSelect({ value, names, onChange, className }: Props) {
  if (names.length < 2 && !value) return null;
  const offered = value && !names.includes(value) ? [value, ...names] : names;
  return (
    <Select
      aria-label="Base model"
      value={value ?? ""}
      onChange={(event) => onChange(event.target.value || undefined)}
      className={className}
      options={[["", "Any base model"], ...offered]}
    />
  );
}
