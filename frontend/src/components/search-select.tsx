import { ChevronsUpDown } from "lucide-react";
import { Popover } from "radix-ui";
import { Suspense, useState } from "react";
import { cn } from "@/lib/cn";
import { lazyPart } from "@/lib/lazy-part";
import { CONTROL, useFieldControl } from "./field";
import { Skeleton } from "./notices";
import type { SearchSelectProps } from "./search-options";

const SearchList = lazyPart(() => import("./search-list"), "SearchList");

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
