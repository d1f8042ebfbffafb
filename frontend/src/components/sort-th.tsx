import { ArrowDown, ArrowUp } from "lucide-react";
import { cn } from "@/lib/cn";
import { Th } from "./table";

interface SortThProps<Column extends string> {
  label: string;
  column: Column;
  /** The field that the list is sorted by; a leading minus means descending. */
  sort: Column | `-${Column}`;
  onSort: (sort: Column | `-${Column}`) => void;
  align?: "right";
  className?: string;
}

/** A column header that sorts the list on the server: ascending first, then descending. */
export function SortTh<Column extends string>({ label, column, sort, onSort, align, className }: SortThProps<Column>) {
  const down = sort === `-${column}`;
  const active = down || sort === column;
  const Arrow = down ? ArrowDown : ArrowUp;
  return (
    <Th
      aria-sort={active ? (down ? "descending" : "ascending") : "none"}
      className={cn(align === "right" && "text-right", className)}
    >
      <button
        type="button"
        onClick={() => onSort(active && !down ? `-${column}` : column)}
        className="inline-flex items-center gap-1 rounded hover:text-ink"
      >
        {label}
        {active && <Arrow className="size-3" aria-hidden />}
      </button>
    </Th>
  );
}
