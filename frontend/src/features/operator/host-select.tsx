import { Select } from "@/components/field";

/** Maximum number of hosts that are all shown; of more, only the selected one. */
export const MAX_HOSTS_IN_FULL = 4;

interface HostSelectProps {
  label: string;
  names: string[];
  /** Name of the selected host; empty for none. */
  value: string;
  /** Label of the empty option. Without it, one host is always selected. */
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
