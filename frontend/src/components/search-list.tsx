import { Command } from "cmdk";
import { Check } from "lucide-react";
import { useDeferredValue, useEffect, useRef, useState } from "react";
import { useQuery } from "@/app/use-query";
import { cn } from "@/lib/cn";
import { number } from "@/lib/format";
import { ErrorNotice } from "./notices";
import type { SearchOption, SearchSelectProps } from "./search-options";

type ListProps = Pick<SearchSelectProps, "value" | "first" | "hint" | "find"> & { onChoose: (value: string) => void };

/** The open list of a `SearchSelect`. It says how many options match if it does not show all of them. */
export function SearchList({ value, first = [], hint, find, onChoose }: ListProps) {
  const [needle, setNeedle] = useState("");
  const search = useDeferredValue(needle.trim());
  const { data, error, refetch } = useQuery(find(search));
  // The list is mounted after the popover took the focus.
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => input.current?.focus(), []);
  const options = [...(search ? [] : first), ...(data?.options ?? [])];
  // Results arrive after typing: Enter selects the first of them unless the reader moved to another.
  const [moved, setMoved] = useState(`=${value}`);
  const marked = options.some((option) => `=${option.value}` === moved) ? moved : `=${options[0]?.value ?? ""}`;
  const more = data ? data.total - data.options.length : 0;
  return (
    <Command label={hint} shouldFilter={false} value={marked} onValueChange={setMoved}>
      <Command.Input
        ref={input}
        value={needle}
        onValueChange={setNeedle}
        placeholder={hint}
        className="h-10 w-full border-b bg-transparent px-3.5 text-sm outline-none"
      />
      <ErrorNotice error={error} onRetry={refetch} className="m-2" />
      <Command.List className="scroll-quiet max-h-80 overflow-y-auto p-1">
        {data && <Command.Empty className="px-3 py-6 text-center text-sm text-ink-3">No matches.</Command.Empty>}
        {options.map((option) => (
          <Row key={option.value} option={option} chosen={option.value === value} onChoose={onChoose} />
        ))}
      </Command.List>
      {more > 0 && (
        <p className="border-t px-3.5 py-2 text-xs text-ink-3">{number(more)} more. Type to find one of them.</p>
      )}
    </Command>
  );
}

interface RowProps {
  option: SearchOption;
  chosen: boolean;
  onChoose: (value: string) => void;
}

function Row({ option, chosen, onChoose }: RowProps) {
  return (
    <Command.Item
      // An item without a value would get its text as one.
      value={`=${option.value}`}
      onSelect={() => onChoose(option.value)}
      className="flex min-h-9 cursor-pointer items-center gap-2.5 rounded-md px-2.5 py-1.5 text-sm data-[selected=true]:bg-fill-2"
    >
      <span className="min-w-0 flex-1">
        <span className="block truncate" title={option.label} dir="auto">
          {option.label}
        </span>
        {option.note && <span className="block truncate font-mono text-2xs text-ink-3">{option.note}</span>}
      </span>
      <Check
        className={cn("size-4 shrink-0 text-accent-text", !chosen && "invisible")}
        aria-label={chosen ? "selected" : undefined}
      />
    </Command.Item>
  );
}
