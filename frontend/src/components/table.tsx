import type { ComponentProps } from "react";
import { cn } from "@/lib/cn";

/** A table that scrolls sideways inside its region, so that the page does not. */
export function Table({ className, label, ...props }: ComponentProps<"table"> & { label: string }) {
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a scrolling region must be reachable by keyboard
    <div className="scroll-quiet relative overflow-x-auto" tabIndex={0} role="region" aria-label={label}>
      <table {...props} aria-label={label} className={cn("w-full border-collapse text-left text-sm", className)} />
    </div>
  );
}

export function Th({ className, ...props }: ComponentProps<"th">) {
  return (
    <th
      scope="col"
      {...props}
      className={cn("h-9 border-b bg-surface px-4 text-xs font-medium whitespace-nowrap text-ink-3", className)}
    />
  );
}

export function Tr({ className, ...props }: ComponentProps<"tr">) {
  return <tr {...props} className={cn("border-b last:border-0 hover:bg-fill/60", className)} />;
}

export function Td({ className, ...props }: ComponentProps<"td">) {
  return <td {...props} className={cn("h-row px-4 py-1 whitespace-nowrap", className)} />;
}
