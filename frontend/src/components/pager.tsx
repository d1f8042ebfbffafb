import { ChevronLeft, ChevronRight } from "lucide-react";
import { useEffect } from "react";
import { number } from "@/lib/format";
import { Button } from "./button";

interface PagerProps {
  /** Label of the navigation, needed if a page has several lists. */
  label?: string;
  /** Index of the page; 0 by default. */
  page?: number;
  size: number;
  total: number;
  /** Gets undefined for the first page. */
  onPage: (page?: number) => void;
}

/**
 * The range of rows that is shown, the total, and buttons for other pages. It is hidden if all rows fit on one page. It
 * goes back to the last page if the shown one has no rows left.
 */
export function Pager({ label = "Pages", page = 0, size, total, onPage }: PagerProps) {
  const last = Math.max(0, Math.ceil(total / size) - 1);
  useEffect(() => {
    if (page > last) onPage(last || undefined);
  }, [page, last, onPage]);
  if (total <= size && page === 0) return null;
  const first = page * size;
  // A disabled button would lose the focus on the first and the last page.
  const turn = (to: number) =>
    to < 0 || to > last ? { "aria-disabled": true } : { onClick: () => onPage(to || undefined) };
  return (
    <nav aria-label={label} className="flex items-center justify-end gap-2 border-t px-4 py-2 text-xs text-ink-3">
      <span className="tnum mr-auto" aria-live="polite">
        {number(Math.min(first + 1, total))}–{number(Math.min(first + size, total))} of {number(total)}
      </span>
      <Button size="sm" variant="ghost" {...turn(page - 1)}>
        <ChevronLeft /> Previous
      </Button>
      <Button size="sm" variant="ghost" {...turn(page + 1)}>
        Next <ChevronRight />
      </Button>
    </nav>
  );
}
