import type { InfiniteData } from "@tanstack/react-query";
import type { RequestPage } from "@/api/types";

export type Pages = InfiniteData<RequestPage, unknown>;

/** Maximum rows of the first page before the list starts again with the newest. */
export const MAX_LISTED = 200;

/**
 * The list with what is new in front. Where more ended than was read, or the list has grown long, it begins anew with the
 * newest: nothing is lost, older rows are a page away.
 */
export function withNewest(list: Pages, newest: RequestPage): Pages {
  const [first, ...older] = list.pages;
  const known = new Set(first?.results.map(({ id }) => id));
  // Both lists are newest first: rows before one that is shown are new, rows after it may belong to a later page.
  const joint = newest.results.findIndex(({ id }) => known.has(id));
  if (joint === 0 || newest.results.length === 0) return list;
  if (!first || joint < 0 || first.results.length + joint > MAX_LISTED)
    return { pages: [newest], pageParams: [undefined] };
  return { ...list, pages: [{ ...first, results: [...newest.results.slice(0, joint), ...first.results] }, ...older] };
}
