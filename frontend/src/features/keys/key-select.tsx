import { useQuery } from "@/app/use-query";
import type { SearchOption } from "@/components/search-options";
import { SearchSelect } from "@/components/search-select";
import { useTenant } from "@/features/session/queries";
import { keyOptionsQuery, type KeyFilter } from "./queries";

interface Props {
  /** Accessible name outside a `Field`. */
  label?: string;
  /** ID of a key, or the value of one of the `first` options. */
  value: string;
  onChange: (id: string) => void;
  first?: SearchOption[];
  /** Limits the keys that are offered. */
  filter?: KeyFilter;
  disabled?: boolean;
  testId?: string;
}

/** Selects one of the tenant's API keys, which are searched by the server. */
export function KeySelect({ value, first = [], filter = {}, ...props }: Props) {
  const tenant = useTenant();
  const named = first.find((option) => option.value === value);
  const { data } = useQuery({ ...keyOptionsQuery(tenant, value, filter), enabled: value !== "" && !named });
  const key = data?.options.find((option) => option.value === value);
  return (
    <SearchSelect
      {...props}
      value={value}
      text={named?.label ?? key?.label ?? (value || "No key")}
      first={first}
      hint="Search by name or key prefix"
      find={(search) => keyOptionsQuery(tenant, search, filter)}
    />
  );
}
