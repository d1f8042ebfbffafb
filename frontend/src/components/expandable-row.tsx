import { ChevronRight } from "lucide-react";
import type { ReactNode } from "react";
import { cn } from "@/lib/cn";

interface ExpandableRowProps {
  open: boolean;
  onToggle: () => void;
  /** Classes of the button that concern its layout and padding. */
  className?: string;
  /** Details that are shown while the row is open. */
  details: ReactNode;
  /** The content of the button. */
  children: ReactNode;
}

/** A list item that is a button, which shows or hides details. */
export function ExpandableRow({
  open,
  onToggle,
  className = "min-h-row gap-3 px-4 py-1",
  details,
  children,
}: ExpandableRowProps) {
  return (
    <li>
      <button
        type="button"
        aria-expanded={open}
        onClick={onToggle}
        className={cn("flex w-full items-center text-left text-sm hover:bg-fill/60", className)}
      >
        <ChevronRight
          className={cn("size-3.5 shrink-0 text-ink-3 transition-transform", open && "rotate-90")}
          aria-hidden
        />
        {children}
      </button>
      {open && details}
    </li>
  );
}
