import { Select } from "./field";

interface Props {
  value: string | undefined;
  /** By their names; the chosen one is offered even if it is not among them. */
  names: readonly string[];
  onChange: (chosen: string | undefined) => void;
  className?: string;
}

/** Which base model is looked at. Nothing where there is only one to look at. */
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
