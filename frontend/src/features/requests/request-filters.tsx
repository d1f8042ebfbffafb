import { SlidersHorizontal, X } from "lucide-react";
import { useId, useState } from "react";
import { useQuery } from "@/app/use-query";
import { BaseModelSelect } from "@/components/base-model-select";
import { Button } from "@/components/button";
import { type Option, Select } from "@/components/field";
import { SearchInput } from "@/components/search-input";
import { KeySelect } from "@/features/keys/key-select";
import { useTenant } from "@/features/session/queries";
import { usageQuery } from "@/features/usage/queries";
import { cn } from "@/lib/cn";
import { countFilters, isFiltered, NO_FILTERS, OUTCOMES, type RequestsSearch, SPANS } from "./search";

const SPAN_LABELS: Record<(typeof SPANS)[number], string> = {
  "15m": "Last 15 minutes",
  "1h": "Last hour",
  "6h": "Last 6 hours",
  "1d": "Last day",
  "7d": "Last 7 days",
};
const SLOWER: [ms: number, label: string][] = [
  [100, "100 ms and slower"],
  [1000, "1 s and slower"],
  [5000, "5 s and slower"],
  [30_000, "30 s and slower"],
];
const LARGER = [1000, 4000, 16_000, 64_000];
const REQUEST_ID = /^(req_|chatcmpl-|cmpl-)?[0-9a-f]{16,}$/i;

interface Props {
  search: RequestsSearch;
  onChange: (change: RequestsSearch) => void;
}

/** Callers that are no API key, above the keys. */
const CALLERS = [
  { value: "", label: "Any key" },
  { value: "console", label: "The console" },
];

/** Returns the filter for a part of an adapter's name, or for a whole name in quotation marks. */
function ofAdapter(typed: string): RequestsSearch {
  const whole = /^"([^"]+)"$/.exec(typed)?.[1];
  return { adapter: whole, adapter_contains: whole ? undefined : typed || undefined };
}

const numeric = (value: string) => (value === "" ? undefined : Number(value));

/** The filters of the list. Their values are in the address. */
export function RequestFilters({ search, onChange }: Props) {
  const tenant = useTenant();
  const bases = (useQuery(usageQuery(tenant, 30)).data?.by_base_model ?? []).flatMap(
    ({ base_model }) => base_model ?? [],
  );
  const [open, setOpen] = useState(false);
  const id = useId();
  const active = countFilters(search);
  const find = (typed = "") => {
    const isId = REQUEST_ID.test(typed) || typed.startsWith("req_");
    onChange(isId ? { id: typed, model: undefined } : { id: undefined, model: typed || undefined });
  };
  return (
    <div role="search" aria-label="Requests" className="mb-3 grid gap-2">
      <div className="grid grid-cols-[minmax(0,1fr)_auto] gap-2 sm:grid-cols-2 lg:grid-cols-4">
        <SearchInput label="Model or request ID" value={search.id ?? search.model} onChange={find} />
        <Button
          aria-expanded={open}
          aria-controls={`${id}-a ${id}-b`}
          onClick={() => setOpen(!open)}
          className="h-9! sm:hidden"
          data-testid="filters"
        >
          <SlidersHorizontal /> Filters{active > 0 && ` (${active})`}
        </Button>
        <div
          id={`${id}-a`}
          className={cn("contents", !open && "max-sm:hidden", open && "max-sm:col-span-full max-sm:grid max-sm:gap-2")}
        >
          <SearchInput
            label="Adapter"
            value={search.adapter ? `"${search.adapter}"` : search.adapter_contains}
            onChange={(typed = "") => onChange(ofAdapter(typed))}
          />
          <SearchInput
            label="Version"
            value={search.version?.toString()}
            onChange={(typed) => onChange({ version: numeric(typed?.replace(/\D/g, "") ?? "") })}
          />
          <SearchInput label="Host" value={search.host} onChange={(host) => onChange({ host })} />
        </div>
      </div>
      <div
        id={`${id}-b`}
        className={cn(
          !open && "max-sm:hidden",
          "grid grid-cols-2 gap-2 sm:grid-cols-3 lg:auto-cols-fr lg:grid-flow-col lg:grid-cols-none",
        )}
      >
        <Select
          aria-label="Outcome"
          value={search.outcome ?? ""}
          onChange={(event) => onChange({ outcome: (event.target.value || undefined) as RequestsSearch["outcome"] })}
          options={[["", "Any outcome"], ...OUTCOMES]}
        />
        <BaseModelSelect value={search.base_model} names={bases} onChange={(base_model) => onChange({ base_model })} />
        <KeySelect
          label="Key"
          value={search.key ?? ""}
          onChange={(key) => onChange({ key: key || undefined })}
          first={CALLERS}
        />
        <Select
          aria-label="Latency"
          value={search.min_ms ?? ""}
          onChange={(event) => onChange({ min_ms: numeric(event.target.value) })}
          options={[["", "Any latency"], ...SLOWER]}
        />
        <Select
          aria-label="Tokens"
          value={search.min_tokens ?? ""}
          onChange={(event) => onChange({ min_tokens: numeric(event.target.value) })}
          options={[
            ["", "Any tokens"],
            ...LARGER.map((tokens): Option => [tokens, `${tokens.toLocaleString("en-GB")} and more`]),
          ]}
        />
        <Select
          aria-label="Time"
          value={search.last ?? ""}
          onChange={(event) =>
            onChange({ last: (event.target.value || undefined) as RequestsSearch["last"], since: undefined })
          }
          options={[["", "Any time"], ...SPANS.map((span): Option => [span, SPAN_LABELS[span]])]}
        />
      </div>
      {isFiltered(search) && (
        <p className="flex flex-wrap items-center gap-2 text-xs text-ink-3">
          {!search.id && !search.last && !search.since && "Without a time filter, the last 30 days are searched."}
          <Button size="sm" variant="ghost" onClick={() => onChange(NO_FILTERS)}>
            <X /> Clear filters
          </Button>
        </p>
      )}
    </div>
  );
}
