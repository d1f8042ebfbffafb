import { Select } from "@/components/field";

/** Of so few hosts each is shown; of more, the one that is chosen. */
export const MAX_HOSTS_IN_FULL = 4;

interface HostSelectProps {
  label: string;
  names: string[];
  /** Empty for none of them. */
  value: string;
  /** What the empty choice is called; without it one of them is always chosen. */
  none?: string;
  onChange: (host: string | undefined) => void;
}

export function HostSelect({ label, names, value, none, onChange }: HostSelectProps) {
  return (
    <div className="w-44">
      <Select
        aria-label={label}
        value={value}
        onChange={(event) => onChange(event.target.value || undefined)}
        options={[...(none ? [["", none] as const] : []), ...names]}
      />
    </div>
  );
}
