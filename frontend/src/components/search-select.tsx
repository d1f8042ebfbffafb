import type { UseQueryOptions } from "@tanstack/react-query";
import { ChevronsUpDown } from "lucide-react";
import { Popover } from "radix-ui";
import { Suspense, useState } from "react";
import { cn } from "@/lib/cn";
import { lazyPart } from "@/lib/lazy-part";
import { CONTROL, useFieldControl } from "./field";
import { Skeleton } from "./notices";

const SearchList = lazyPart(() => import("./search-list"), "SearchList");

export interface SearchOption {
  value: string;
  label: string;
  /** A second line, such as the beginning of a key. */
  note?: string;
}

/** The options that match a search, and the number of all that do. */
export interface SearchOptions {
  options: SearchOption[];
  total: number;
}

export interface SearchSelectProps {
  /** Accessible name outside a `Field`. */
  label?: string;
  value: string;
  /** Label of the selected value. */
  text: string;
  /** Options above the others, such as "Any key"; hidden while a search is typed. */
  first?: SearchOption[];
  /** Placeholder of the search. */
  hint: string;
  /** Returns the query that reads the matching options from the server. */
  // eslint-disable-next-line @typescript-eslint/no-explicit-any -- the type of the key does not matter here
  find: (search: string) => UseQueryOptions<any, Error, SearchOptions, any>;
  onChange: (value: string) => void;
  disabled?: boolean;
  className?: string;
  testId?: string;
}

/** A select whose options are searched by the server, for lists that may have thousands. */
export function SearchSelect(props: SearchSelectProps) {
  const { label, value, text, first, hint, find, onChange, disabled, className, testId } = props;
  const [open, setOpen] = useState(false);
  return (
    // Modal, so that the list scrolls inside a dialog.
    <Popover.Root open={open} onOpenChange={setOpen} modal>
      <Popover.Trigger
        {...useFieldControl()}
        role="combobox"
        aria-label={label}
        disabled={disabled}
        data-testid={testId}
        className={cn(CONTROL, "flex h-9 items-center gap-2 text-left", className)}
      >
        <span className="min-w-0 flex-1 truncate" title={text}>
          {text}
        </span>
        <ChevronsUpDown className="size-3.5 shrink-0 text-ink-3" aria-hidden />
      </Popover.Trigger>
      <Popover.Portal>
        <Popover.Content
          aria-label={hint}
          align="start"
          sideOffset={6}
          collisionPadding={8}
          className="z-50 w-[min(22rem,calc(100vw-1rem))] animate-pop overflow-hidden rounded-lg border border-line-2 bg-raised shadow-pop outline-none"
        >
          <Suspense fallback={<Skeleton className="m-2 h-40" />}>
            <SearchList
              value={value}
              first={first}
              hint={hint}
              find={find}
              onChoose={(chosen) => {
                onChange(chosen);
                setOpen(false);
              }}
            />
          </Suspense>
        </Popover.Content>
      </Popover.Portal>
    </Popover.Root>
  );
}
